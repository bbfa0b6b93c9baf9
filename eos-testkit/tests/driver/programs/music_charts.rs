//! Kafka Streams' music charts: the most played songs of each genre.

use std::cmp::Reverse;

use eos_core::{App, KeyValueStore, Topic};
use serde::{Deserialize, Serialize};

/// The shortest play that counts, in ms.
const SHORTEST_MS: u64 = 30_000;
/// The maximum number of songs in a chart.
const MOST: usize = 2;

/// Passes through a repartition topic, so it is both serialized and deserialized.
#[derive(Serialize, Deserialize)]
struct Play {
    song: u64,
    duration_ms: u64,
}

/// The key is the user.
fn plays() -> Topic<String, Play> {
    Topic::json("play-events")
}

#[derive(Serialize, Deserialize)]
struct Song {
    title: String,
    genre: String,
}

/// The key is the number of the song.
fn songs() -> Topic<u64, Option<Song>> {
    Topic::json("song-feed")
}

/// A song and its plays.
#[derive(Serialize, Deserialize)]
struct Played {
    song: Song,
    plays: u64,
}

/// The key is the genre. The value has titles and plays.
fn charts() -> Topic<String, Vec<(String, u64)>> {
    Topic::json("charts")
}

fn app() -> App {
    let mut app = App::new("music-charts-v1");
    let songs = app.table(&songs(), &KeyValueStore::json("songs"));
    app.source(&plays())
        .filter(|play| play.duration_ms >= SHORTEST_MS)
        .key_by(|play| play.song)
        .repartition(&Topic::json("plays-by-song"))
        .join(&songs, |_play, song| Played { song, plays: 1 })
        .group_by_key()
        .reduce(&KeyValueStore::json("plays-of-songs"), |so_far, played| {
            Played {
                plays: so_far.plays + 1,
                ..played
            }
        })
        .to_stream()
        .group_by(
            |played| played.song.genre.clone(),
            &Topic::json("songs-by-genre"),
        )
        // The number of a song's plays only grows. A new count replaces the old one, so no value has to be subtracted.
        .aggregate(
            &KeyValueStore::<String, Vec<(String, u64)>>::json("charts"),
            Vec::new,
            |_genre, Played { song, plays }, mut chart| {
                chart.retain(|(title, _)| *title != song.title);
                chart.push((song.title, plays));
                chart.sort_by_key(|(title, plays)| (Reverse(*plays), title.clone()));
                chart.truncate(MOST);
                chart
            },
        )
        .to(&charts());
    app
}

mod tests {
    use eos_testkit::{TestDriver, crash_everywhere};
    use serde_json::{Value, json};

    use super::*;

    fn song(driver: &mut TestDriver, song: u64, title: &str, genre: &str) {
        let value = json!({"title": title, "genre": genre});
        driver.pipe(&songs().values::<Value>(), song, value);
    }

    fn play(driver: &mut TestDriver, song: u64, seconds: u64) {
        let value = json!({"song": song, "duration_ms": seconds * 1000});
        driver.pipe(&plays().values::<Value>(), "a user", value);
    }

    fn scenario(driver: &mut TestDriver) {
        song(driver, 1, "Fresh Fruit", "punk");
        song(driver, 2, "Wonderin'", "punk");
        song(driver, 3, "Golden Hour", "soul");
        song(driver, 4, "Damaged", "punk");
        for played in [1, 2, 2, 3, 4, 4, 4] {
            play(driver, played, 60);
        }
        play(driver, 1, 29);
        play(driver, 9, 60);
    }

    #[test]
    fn the_most_played_songs_of_each_genre() {
        let mut driver = TestDriver::new(app());
        scenario(&mut driver);
        let charts = driver.read_map(&charts());
        let shown = |genre: &str| {
            let chart = charts[genre].iter();
            let chart: Vec<_> = chart
                .map(|(title, plays)| format!("{title} {plays}"))
                .collect();
            chart.join(", ")
        };
        assert_eq!(shown("punk"), "Damaged 3, Wonderin' 2");
        assert_eq!(shown("soul"), "Golden Hour 1");
        assert_eq!(charts.len(), 2);
    }

    #[test]
    fn a_crash_anywhere_changes_nothing() {
        let places = crash_everywhere(
            || TestDriver::new(app()),
            |driver| {
                scenario(driver);
                driver.committed()
            },
        );
        assert!(places > 30, "{places}");
    }
}
