//! The characters of the dashboard: those of ratatui, or ASCII for a locale that is not UTF-8.

use ratatui::buffer::Buffer;

/// First of the 256 braille patterns, in Unicode's order: bit `n` is dot `n + 1`.
const BRAILLE: u32 = 0x2800;
/// The dots of a pattern's upper half: 1, 2, 4 and 5.
const UPPER_DOTS: u32 = 0b0001_1011;

/// The characters that the terminal's locale supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Charset {
    #[default]
    Unicode,
    Ascii,
}

impl Charset {
    /// The character set of the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set. Without any of them it is Unicode, since
    /// containers rarely set one.
    pub(super) fn of_environment() -> Self {
        let names = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
        let set = names.filter_map(|name| std::env::var(name).ok());
        Self::of_locale(set.into_iter().find(|value| !value.is_empty()).as_deref())
    }

    /// The character set of a locale such as `en_US.UTF-8`.
    fn of_locale(locale: Option<&str>) -> Self {
        let codeset = locale.map(|locale| locale.to_ascii_lowercase());
        match codeset {
            Some(codeset) if !codeset.contains("utf-8") && !codeset.contains("utf8") => Self::Ascii,
            _ => Self::Unicode,
        }
    }

    /// Replaces the characters of a drawn screen that the set does not have.
    pub(super) fn apply(self, screen: &mut Buffer) {
        if self == Self::Unicode {
            return;
        }
        for cell in &mut screen.content {
            let symbol = cell.symbol();
            if !symbol.is_ascii() {
                let replacement = symbol.chars().next().map_or(' ', ascii);
                cell.set_char(replacement);
            }
        }
    }
}

/// The ASCII character that looks like `symbol`.
fn ascii(symbol: char) -> char {
    match symbol {
        '│' => '|',
        '─' => '-',
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' => '+',
        '█' => '#',
        // Parts of a block: those of a bar's end, and the levels of small bars.
        '▉' | '▊' | '▋' | '▌' | '▆' | '▇' => '=',
        '▍' | '▎' | '▏' | '▃' | '▄' | '▅' => '-',
        '▁' | '▂' => '_',
        '←' => '<',
        '→' => '>',
        '↑' => '^',
        '↓' => 'v',
        '“' | '”' => '"',
        '‘' | '’' => '\'',
        '–' | '—' => '-',
        '×' => 'x',
        '·' => '.',
        '…' => '.',
        '\u{a0}' | '\u{202f}' => ' ',
        _ => match (symbol as u32).checked_sub(BRAILLE) {
            Some(0) => ' ',
            Some(dots @ 1..=0xff) => match (dots & UPPER_DOTS != 0, dots & !UPPER_DOTS != 0) {
                (true, true) => ':',
                (true, false) => '\'',
                (false, _) => '.',
            },
            _ => '?',
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_names_the_character_set() {
        for (locale, expected) in [
            (None, Charset::Unicode),
            (Some("en_US.UTF-8"), Charset::Unicode),
            (Some("C.utf8"), Charset::Unicode),
            (Some("C"), Charset::Ascii),
            (Some("POSIX"), Charset::Ascii),
            (Some("de_DE.ISO-8859-1"), Charset::Ascii),
        ] {
            assert_eq!(Charset::of_locale(locale), expected, "{locale:?}");
        }
    }

    #[test]
    fn braille_patterns_keep_their_halves() {
        let text = "┌─┐│█←“×\u{a0}⠁⠈⠄⢀⡀⣿⠀語";
        let found: String = text.chars().map(ascii).collect();
        assert_eq!(found, "+-+|#<\"x ''...: ?");
    }
}
