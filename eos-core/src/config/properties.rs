//! Java's `.properties` syntax, as `java.util.Properties.load` reads it, in UTF-8.

/// A line that can't be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadLine {
    /// The number of the line, from 1.
    pub(super) line: usize,
    pub(super) reason: &'static str,
}

/// Returns keys and values with the first line of each, in the order of the file.
pub(super) fn parse(text: &str) -> Result<Vec<(usize, String, String)>, BadLine> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, first)) = lines.next() {
        let line = at + 1;
        let first = first.trim_start_matches(is_space);
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = first.to_owned();
        while continues(&logical) {
            logical.pop();
            // A backslash at the end of the last line has no effect.
            let Some((_, next)) = lines.next() else { break };
            logical.push_str(next.trim_start_matches(is_space));
        }
        let (key, value) = split(&logical);
        let read = |raw| unescape(raw).map_err(|reason| BadLine { line, reason });
        let key = read(key)?;
        if key.is_empty() {
            let reason = "there is no key before the `=`";
            return Err(BadLine { line, reason });
        }
        found.push((line, key, read(value)?));
    }
    Ok(found)
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

/// Whether a line ends in an odd number of backslashes.
fn continues(line: &str) -> bool {
    line.bytes().rev().take_while(|&b| b == b'\\').count() % 2 == 1
}

/// Splits a line into key and value. The key ends at the first unescaped `=`, `:` or white space. White space around
/// the separator belongs to neither side.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.find(|c| {
        let ends = !escaped && (is_space(c) || c == '=' || c == ':');
        escaped = !escaped && c == '\\';
        ends
    });
    let Some(end) = end else { return (line, "") };
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start_matches(is_space);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, value.trim_start_matches(is_space))
}

fn unescape(raw: &str) -> Result<String, &'static str> {
    let mut text = String::with_capacity(raw.len());
    let mut units = Vec::new();
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        let plain = match c {
            '\\' => match chars.next() {
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    let unit = u16::from_str_radix(&digits, 16).ok();
                    let unit = unit.filter(|_| digits.len() == 4 && !digits.starts_with('+'));
                    units.push(unit.ok_or("\\u needs four hexadecimal digits")?);
                    continue;
                }
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some(other) => other,
                None => break,
            },
            c => c,
        };
        flush(&mut units, &mut text)?;
        text.push(plain);
    }
    flush(&mut units, &mut text)?;
    Ok(text)
}

/// Decodes the collected `\u` escapes. They are UTF-16, so two of them may form one character.
fn flush(units: &mut Vec<u16>, text: &mut String) -> Result<(), &'static str> {
    if !units.is_empty() {
        let more = String::from_utf16(units);
        let more = more.map_err(|_| "\\u escapes that are not a valid character")?;
        text.push_str(&more);
        units.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(usize, String, String)> {
        parse(text).unwrap()
    }

    fn pair(line: usize, key: &str, value: &str) -> (usize, String, String) {
        (line, key.into(), value.into())
    }

    #[test]
    fn it_reads_what_java_writes() {
        let text = "\u{feff}# comment\n\
                    ! another\r\n\
                    \n\
                    linger.ms=5\r\n\
                    \t acks : all \n\
                    client.rack rack a\n\
                    empty\n\
                    equals==\n\
                    ssl.ca.pem=-----BEGIN\\\n\
                    \x20   -----\\nEND\n\
                    a\\=b\\:c\\ d = x\\u00e9\\u20AC\\uD83D\\uDE00\\q\n\
                    path=c:\\\\dir\\\\\n\
                    ü=ö\n\
                    last=one\\";
        assert_eq!(
            pairs(text),
            [
                pair(4, "linger.ms", "5"),
                pair(5, "acks", "all "),
                pair(6, "client.rack", "rack a"),
                pair(7, "empty", ""),
                pair(8, "equals", "="),
                pair(9, "ssl.ca.pem", "-----BEGIN-----\nEND"),
                pair(11, "a=b:c d", "xé€😀q"),
                pair(12, "path", "c:\\dir\\"),
                pair(13, "ü", "ö"),
                pair(14, "last", "one"),
            ]
        );
        assert_eq!(pairs(""), []);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        let line = |text| parse(text).unwrap_err().line;
        assert_eq!(line("a=1\n = 2"), 2);
        assert_eq!(line("a=\\u12"), 1);
        assert_eq!(line("a=\\u+123"), 1);
        assert_eq!(line("\n\na=\\ud83d"), 3);
    }
}
