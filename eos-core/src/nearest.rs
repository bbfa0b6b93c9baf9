//! Suggestions for misspelt names.

/// Returns the most similar of these names, if one is similar enough.
pub(crate) fn nearest<'n>(name: &str, among: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    // One letter in four may be wrong, but at least one and at most four.
    let at_most = (name.len() / 4).clamp(1, 4);
    among
        .into_iter()
        .map(|known| (distance(name, known), known))
        .filter(|(distance, _)| *distance <= at_most)
        .min()
        .map(|(_, name)| name)
}

/// Returns the number of letters to add, remove, replace or swap with their neighbour (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let (mut before, mut above) = (Vec::new(), (0..=b.len()).collect::<Vec<_>>());
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let replaced = above[j] + usize::from(x != y);
            let mut least = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                let swapped: &Vec<usize> = &before;
                least = least.min(swapped[j - 1] + 1);
            }
            row.push(least);
        }
        before = above;
        above = row;
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::table;

    #[test]
    fn a_slip_of_the_finger_finds_what_was_meant() {
        for (slip, meant) in [
            ("comit.interval.ms", "commit.interval.ms"),
            ("linger.sm", "linger.ms"),
            ("session.timeout", "session.timeout.ms"),
            ("sasl.pasword", "sasl.password"),
            ("isolation.levl", "isolation.level"),
            ("bootstrap.server", "bootstrap.servers"),
        ] {
            assert_eq!(table::nearest(slip), Some(meant), "{slip}");
        }
        for nothing in ["", "x", "service.host", "my.own.property"] {
            assert_eq!(table::nearest(nothing), None, "{nothing}");
        }
        assert_eq!(nearest("oders", ["order", "orders"]), Some("orders"));
    }

    #[test]
    fn distances() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("ms", "sm"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
