//! Rules for mixtures of experts.

use super::TransformerConfig;
use crate::config::limits::{LARGEST_SIZE, positive, within};
use crate::config::{ExpertGroups, Experts};
use crate::error::ConfigError;

/// Several times the most of any published model.
const MAX_EXPERTS: usize = 1 << 12;

impl TransformerConfig {
    pub(super) fn check_experts(&self, experts: &Experts) -> Result<(), ConfigError> {
        within("experts.count", experts.count, 1..=MAX_EXPERTS)?;
        within("experts.active", experts.active, 1..=experts.count)?;
        for (field, width) in [
            ("experts.width", experts.width),
            ("experts.shared_width", experts.shared_width),
        ] {
            if let Some(width) = width {
                within(field, width, 1..=LARGEST_SIZE)?;
            }
        }
        for (field, coefficient) in [
            ("experts.balance_loss", experts.balance_loss),
            ("experts.z_loss", experts.z_loss),
        ] {
            if !(coefficient.is_finite() && coefficient >= 0.0) {
                let rule = "must be at least 0 and finite";
                return Err(ConfigError::new(field, coefficient, rule));
            }
            if coefficient > 0.0 {
                positive(field, coefficient)?;
            }
        }
        if let Some(scale) = experts.scale {
            positive("experts.scale", scale)?;
        }
        if let Some(groups) = experts.groups {
            check_groups(experts, groups)?;
        }
        match experts.dense_layers.last() {
            Some(&layer) if layer >= self.filled.n_layers => {
                let rule = format!("must be below n_layers = {}", self.filled.n_layers);
                Err(ConfigError::new("experts.dense_layers", layer, rule))
            }
            _ => Ok(()),
        }
    }
}

fn check_groups(experts: &Experts, groups: ExpertGroups) -> Result<(), ConfigError> {
    within("experts.groups.count", groups.count, 1..=experts.count)?;
    within("experts.groups.active", groups.active, 1..=groups.count)?;
    if !experts.count.is_multiple_of(groups.count) {
        let rule = format!("must divide experts.count = {}", experts.count);
        return Err(ConfigError::new("experts.groups.count", groups.count, rule));
    }
    let in_groups = groups.active * (experts.count / groups.count);
    if experts.active > in_groups {
        let rule = format!("must be at most {in_groups}, the experts of the active groups");
        return Err(ConfigError::new("experts.active", experts.active, rule));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::{ExpertGroups, ModelConfig};
    use crate::transformer::checked::tests::error_of;

    fn grouped(count: usize, active: usize, change: impl FnOnce(&mut ModelConfig)) -> String {
        error_of("qwen3-30b-a3b", |raw| {
            if let Some(experts) = &mut raw.experts {
                experts.groups = Some(ExpertGroups { count, active });
            }
            change(raw);
        })
    }

    #[test]
    fn groups_have_equally_many_experts_and_enough_of_them() {
        assert_eq!(grouped(8, 4, |_| {}), "accepted");
        let expected = "model.experts.groups.count = 3: must divide experts.count = 128";
        assert_eq!(grouped(3, 1, |_| {}), expected);
        let expected = "model.experts.groups.active = 9: must be between 1 and 8";
        assert_eq!(grouped(8, 9, |_| {}), expected);
        let expected =
            "model.experts.active = 8: must be at most 4, the experts of the active groups";
        assert_eq!(grouped(32, 1, |_| {}), expected);
        let scaled = |raw: &mut ModelConfig| {
            if let Some(experts) = &mut raw.experts {
                experts.scale = Some(0.0);
            }
        };
        let expected = "model.experts.scale = 0: must be above 0 and finite";
        assert_eq!(grouped(8, 4, scaled), expected);
    }
}
