//! Values that files store in another form than the decoder has them.

/// The form of a tensor's values in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// As in the decoder.
    Plain,
    /// With 1 added. Reading them is exact unless a sum is below ½.
    PlusOne,
    /// `-eˣ` of each value x. Reading and writing round once, from double precision.
    NegatedExponential,
}

/// End of the names of norms' gains.
const GAIN: &str = "norm.weight";

/// Gemma's norms.
pub(super) const GEMMA: &[(&str, Encoding)] = &[(GAIN, Encoding::PlusOne)];

/// The norms and decays of models with delta nets.
pub(super) const HYBRID: &[(&str, Encoding)] = &[
    (".ssm_norm.weight", Encoding::Plain),
    (GAIN, Encoding::PlusOne),
    (".ssm_a", Encoding::NegatedExponential),
];

impl Encoding {
    /// Replaces values of the decoder by those of a file.
    pub(crate) fn encode(self, values: &mut [f32]) {
        match self {
            Self::Plain => {}
            Self::PlusOne => values.iter_mut().for_each(|gain| *gain += 1.0),
            Self::NegatedExponential => values
                .iter_mut()
                .for_each(|x| *x = -f64::from(*x).exp() as f32),
        }
    }

    /// Replaces values of a file by those of the decoder.
    ///
    /// # Errors
    /// A value is none of this form; the error is the rule that it violates.
    pub(crate) fn decode(self, values: &mut [f32]) -> Result<(), &'static str> {
        match self {
            Self::Plain => {}
            Self::PlusOne => values.iter_mut().for_each(|gain| *gain -= 1.0),
            Self::NegatedExponential => {
                for x in values {
                    if !(*x < 0.0 && x.is_finite()) {
                        return Err("its values must be negative");
                    }
                    *x = f64::from(-*x).ln() as f32;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decays_are_read_as_they_were_written_up_to_rounding() {
        let of = Encoding::NegatedExponential;
        for decay in [-4.0_f32, -0.5, 0.0, 0.25, 1.0, 2.75] {
            let mut values = [decay];
            of.encode(&mut values);
            assert!(values[0] < 0.0);
            let stored = values;
            of.decode(&mut values).unwrap();
            assert!((values[0] - decay).abs() <= 1e-7 * decay.abs().max(1.0));
            of.encode(&mut values);
            assert_eq!(values, stored);
        }
        for value in [0.0, 1.0, f32::NAN, f32::NEG_INFINITY] {
            assert!(of.decode(&mut [value]).is_err());
        }
    }
}
