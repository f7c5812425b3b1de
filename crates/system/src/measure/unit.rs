//! Units of figures.

use serde::{Deserialize, Serialize};

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// A number of things.
    #[serde(rename = "count")]
    Count,
    /// Tokens per second.
    #[serde(rename = "tokens/s")]
    TokensPerSecond,
    /// Texts per second.
    #[serde(rename = "texts/s")]
    TextsPerSecond,
    /// Bytes per second.
    #[serde(rename = "B/s")]
    BytesPerSecond,
    /// Bytes of text per second.
    #[serde(rename = "B/s of text")]
    TextBytesPerSecond,
    /// Floating-point operations per second.
    #[serde(rename = "FLOP/s")]
    Flops,
    /// Seconds, printed as such.
    #[serde(rename = "s")]
    Seconds,
    /// Seconds, printed as milliseconds.
    #[serde(rename = "seconds")]
    Milliseconds,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// A loss in nats.
    #[serde(rename = "nats")]
    Nats,
    /// A percentage.
    #[serde(rename = "%")]
    Percent,
    /// A ratio of two values.
    #[serde(rename = "ratio")]
    Ratio,
    /// A relative or absolute error.
    #[serde(rename = "relative")]
    Relative,
}

impl Unit {
    /// The symbol of printed values; empty for errors and counts.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Count | Self::Relative => "",
            Self::TokensPerSecond => "tokens/s",
            Self::TextsPerSecond => "texts/s",
            Self::BytesPerSecond => "GB/s",
            Self::TextBytesPerSecond => "MB/s",
            Self::Flops => "GFLOP/s",
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Bytes => "MiB",
            Self::Nats => "nats",
            Self::Percent => "%",
            Self::Ratio => "×",
        }
    }

    /// Formats a value without its symbol.
    pub fn number(self, value: f64) -> String {
        match self {
            Self::Count => format!("{value:.0}"),
            Self::TokensPerSecond | Self::TextsPerSecond | Self::Percent => format!("{value:.1}"),
            Self::BytesPerSecond => format!("{:.2}", value / 1e9),
            Self::TextBytesPerSecond => format!("{:.2}", value / 1e6),
            Self::Flops => format!("{:.1}", value / 1e9),
            Self::Seconds | Self::Nats => format!("{value:.4}"),
            Self::Milliseconds => format!("{:.3}", value * 1e3),
            Self::Bytes => format!("{:.1}", value / f64::from(1 << 20)),
            Self::Ratio => format!("{value:.2}"),
            Self::Relative => format!("{value:.1e}"),
        }
    }

    /// Formats a value with its symbol.
    pub fn shown(self, value: f64) -> String {
        let (number, symbol) = (self.number(value), self.symbol());
        match symbol {
            "" => number,
            _ => format!("{number} {symbol}"),
        }
    }

    /// True for seconds. They often accompany a speed, whose ratio says the same.
    pub fn is_time(self) -> bool {
        matches!(self, Self::Seconds | Self::Milliseconds)
    }

    /// True if programs are compared by the ratio of such values.
    pub fn has_ratio(self) -> bool {
        match self {
            Self::TokensPerSecond | Self::TextsPerSecond | Self::TextBytesPerSecond => true,
            Self::BytesPerSecond | Self::Flops | Self::Bytes => true,
            Self::Count | Self::Nats | Self::Percent | Self::Ratio | Self::Relative => false,
            Self::Seconds | Self::Milliseconds => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_scaled_to_their_symbol() {
        for (unit, value, shown) in [
            (Unit::Bytes, 3.0 * f64::from(1 << 19), "1.5 MiB"),
            (Unit::BytesPerSecond, 27e9, "27.00 GB/s"),
            (Unit::Flops, 3e9, "3.0 GFLOP/s"),
            (Unit::Milliseconds, 0.0125, "12.500 ms"),
            (Unit::Ratio, 1.256, "1.26 ×"),
            (Unit::Relative, 1e-6, "1.0e-6"),
            (Unit::Count, 804_096.0, "804096"),
        ] {
            assert_eq!(unit.shown(value), shown);
        }
    }
}
