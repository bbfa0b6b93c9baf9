//! The part of CSV that the file needs: commas, quoted fields, and doubled quotes inside them.

/// Returns the fields of each row of a text. Skips empty lines.
pub(super) fn rows(text: &str) -> impl Iterator<Item = Vec<String>> {
    text.lines().filter(|line| !line.is_empty()).map(fields)
}

fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                push(&mut fields, '"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => push(&mut fields, other),
        }
    }
    fields
}

fn push(fields: &mut [String], letter: char) {
    if let Some(field) = fields.last_mut() {
        field.push(letter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_protect_commas_and_quotes() {
        let text = "a,b\n\"x, y\",\"say \"\"hi\"\"\"\n\n,\n";
        let rows: Vec<_> = rows(text).collect();
        assert_eq!(rows, [["a", "b"], ["x, y", "say \"hi\""], ["", ""]]);
    }
}
