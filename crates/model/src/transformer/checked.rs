//! Validated model configuration. `rules` holds the rules, `components` the configurations of components that follow.

mod additions;
mod architecture;
mod components;
mod delta_nets;
mod experts;
mod latent_attention;
mod positions;
mod rules;
#[cfg(test)]
mod tests;

use emberlm_kernels::Activation;

use crate::config::{
    Architecture, AttentionKind, Biases, DeltaNets, DropoutSite, EncoderHeadConfig, Experts,
    Family, FeedForward, Head, Init, LatentAttention, LayerPositions, ModelConfig, ModelKind, Norm,
    Position, ValueEmbeddings, Window, Wiring, ZeroInit,
};
use crate::error::{ConfigError, InputError};
use crate::nn::router_loss::RouterCoefficients;
use crate::transformer::count::counted;

/// A validated configuration: every size is set and every rule holds. [`TransformerConfig::try_from`] builds one;
/// [`TransformerConfig::embeddings`], [`TransformerConfig::stack`] and [`TransformerConfig::lm_head`] return the configurations
/// of its components.
///
/// A `TransformerConfig` is immutable. To change a value, edit the unchecked configuration returned by
/// [`TransformerConfig::raw`] and validate it again.
///
/// ```
/// use emberlm_model::{TransformerConfig, families};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = TransformerConfig::try_from(families::preset("gpt2-small").ok_or("no such preset")?.config)?;
/// let mut raw = config.raw();
/// raw.seq_len = 2 * config.seq_len();
/// assert_eq!(TransformerConfig::try_from(raw)?.seq_len(), 2048);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TransformerConfig {
    /// The configuration with every default filled in.
    filled: ModelConfig,
    vocab_size: usize,
    kv_heads: usize,
    head_dim: usize,
}

/// Methods that return a setting of the validated configuration, a row each; after `=`, what it returns of the settings.
macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident: $type:ty $(= |$raw:ident| $value:expr)?;)*) => {
        impl TransformerConfig {
            $($(#[$doc])* pub fn $name(&self) -> $type {
                getters!(@value &self.filled, $name $(, $raw, $value)?)
            })*
        }
    };
    (@value $filled:expr, $name:ident) => { ($filled).$name };
    (@value $filled:expr, $name:ident, $raw:ident, $value:expr) => {{ let $raw = $filled; $value }};
}

getters! {
    /// The published family that the model belongs to.
    family: Family;
    /// The longest sequence, in tokens.
    seq_len: usize;
    /// Width of the residual stream.
    d_model: usize;
    /// Number of blocks.
    n_layers: usize;
    /// Query heads per block.
    heads: usize;
    /// Probability of dropping an element during training.
    dropout: f64;
    /// Sites where dropout acts.
    dropout_sites: &[DropoutSite] = |raw| &raw.dropout_sites;
    /// True if the embeddings are normalized before the first block.
    norm_embedding: bool;
    /// The linear layers that have a bias.
    bias: Biases;
    /// The attention, with its default number of features filled in.
    attention: &AttentionKind = |raw| &raw.attention;
    /// The normalization.
    norm: Norm;
    /// The position encoding, with its default dims filled in.
    position: &Position = |raw| &raw.position;
    /// The feed-forward layer, with its default width filled in.
    feed_forward: FeedForward;
    /// The mixture of experts, with its default width filled in.
    experts: Option<&Experts> = |raw| raw.experts.as_ref();
    /// The order of sublayers and norms in a block.
    wiring: Wiring;
    /// The output projection.
    head: Head;
    /// Weight initialization.
    initialization: Init = |raw| raw.init;
    /// The positions of blocks that differ from those of the other blocks, if any.
    layer_positions: Option<&LayerPositions> = |raw| raw.layer_positions.as_ref();
    /// Hidden width of the feed-forward layer.
    feed_forward_width: usize = |raw| raw.feed_forward.width_for(raw.d_model);
    /// The feed-forward layer's activation.
    activation: Activation = |raw| raw.feed_forward.activation;
    /// ε of the norms.
    norm_epsilon: f64 = |raw| raw.norm.epsilon();
    /// The value embeddings, if any.
    value_embeddings: Option<&ValueEmbeddings> = |raw| raw.value_embeddings.as_ref();
    /// The gated delta nets, if any.
    delta_nets: Option<&DeltaNets> = |raw| raw.delta_nets.as_ref();
    /// The latent attention, if any, with its sizes filled in.
    latent_attention: Option<&LatentAttention> = |raw| raw.latent_attention.as_ref();
    /// True if the output of the attention's heads has a gate.
    gated_attention: bool;
    /// Linear layers that start with zeros.
    zero_init: &[ZeroInit] = |raw| &raw.zero_init;
    /// Factor on the outputs of sublayers, if any.
    residual_scale: Option<f64>;
}

impl TransformerConfig {
    /// The kind of model.
    pub fn kind(&self) -> ModelKind {
        self.filled.architecture.kind()
    }

    /// The stacks and what only one kind of model has.
    pub fn architecture(&self) -> &Architecture {
        &self.filled.architecture
    }

    /// The head of an encoder, if any.
    pub fn encoder_head(&self) -> Option<&EncoderHeadConfig> {
        match &self.filled.architecture {
            Architecture::Encoder { head, .. } => head.as_ref(),
            Architecture::Decoder | Architecture::EncoderDecoder { .. } => None,
        }
    }

    /// Row of a sequence's first token in the table of learned positions.
    pub fn first_position(&self) -> usize {
        match self.filled.architecture {
            Architecture::Encoder { first_position, .. } => first_position,
            Architecture::Decoder | Architecture::EncoderDecoder { .. } => 0,
        }
    }

    /// The token that begins every target of an encoder–decoder.
    pub fn start_token(&self) -> Option<u32> {
        match self.filled.architecture {
            Architecture::EncoderDecoder { start_token, .. } => Some(start_token),
            Architecture::Decoder | Architecture::Encoder { .. } => None,
        }
    }

    /// The token that stands for ignored labels in the input of an encoder–decoder's decoder; 0 for other models.
    pub fn padding_token(&self) -> u32 {
        match self.filled.architecture {
            Architecture::EncoderDecoder { padding_token, .. } => padding_token,
            Architecture::Decoder | Architecture::Encoder { .. } => 0,
        }
    }

    /// Blocks of the encoder of an encoder–decoder; 0 for other models.
    pub fn encoder_layers(&self) -> usize {
        match self.filled.architecture {
            Architecture::EncoderDecoder { encoder_layers, .. } => encoder_layers,
            Architecture::Decoder | Architecture::Encoder { .. } => 0,
        }
    }

    /// The longest sequence in tokens; `None` with relative positions, which set no limit.
    pub fn longest(&self) -> Option<usize> {
        let relative = matches!(self.filled.position, Position::Relative(_));
        (!relative).then_some(self.filled.seq_len)
    }

    /// Number of parameters.
    pub fn parameters(&self) -> u128 {
        let counts = counted(self);
        counts.iter().map(|count| count.total()).sum()
    }

    /// True if blocks keep a state of all earlier tokens, from which no token can be removed, in place of their keys and values.
    pub fn is_recurrent(&self) -> bool {
        self.delta_nets().is_some() || matches!(self.attention(), AttentionKind::Linear { .. })
    }

    /// Checks that the model supports isolated documents ([`crate::Tokens::documents`]).
    ///
    /// # Errors
    /// The attention is linear or there are delta nets: their states include all earlier tokens.
    pub fn check_documents(&self) -> Result<(), ConfigError> {
        if self.delta_nets().is_some() {
            let rule = "must be absent for documents to be isolated: the state of a delta net cannot leave out a token";
            return Err(ConfigError::new("delta_nets", "set", rule));
        }
        match self.attention() {
            AttentionKind::Softmax { .. } => Ok(()),
            AttentionKind::Linear { .. } => {
                let rule = "must be \"softmax\" for documents to be isolated: linear attention's sums cannot remove a token";
                Err(ConfigError::new("attention.kind", "\"linear\"", rule))
            }
        }
    }

    /// Number of token ids.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Key-value heads per block.
    pub fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// The most elements of a head that can be rotated.
    pub(crate) fn rotatable_dim(&self) -> usize {
        self.filled.rotatable_dim(self.head_dim)
    }

    /// The coefficients of the routers' losses; 0 without experts.
    pub fn router_coefficients(&self) -> RouterCoefficients {
        let experts = self.experts();
        experts.map_or_else(RouterCoefficients::default, |experts| RouterCoefficients {
            balance: experts.balance_loss,
            z: experts.z_loss,
        })
    }

    /// The unchecked configuration, as written to files, with defaults filled in.
    pub fn raw(&self) -> ModelConfig {
        self.filled.clone()
    }

    /// The sliding window, if any.
    pub fn window(&self) -> Option<&Window> {
        match &self.filled.attention {
            AttentionKind::Softmax { window, .. } => window.as_ref(),
            AttentionKind::Linear { .. } => None,
        }
    }

    /// Number of newest tokens that the attention of block `layer` attends to; `None` if it attends to all.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        let window = self.window()?;
        (!window.full_layers.contains(layer)).then_some(window.tokens)
    }

    /// Factor on the logits, if any.
    pub fn logit_scale(&self) -> Option<f64> {
        let head = self.filled.head;
        let by_width = || {
            head.scaled
                .then(|| 1.0 / (self.filled.d_model as f64).sqrt())
        };
        head.scale.or_else(by_width)
    }

    /// Factor on the token embeddings, if any.
    pub fn embedding_scale(&self) -> Option<f64> {
        let raw = &self.filled;
        let by_width = || raw.scale_embedding.then(|| (raw.d_model as f64).sqrt());
        raw.embedding_scale.or_else(by_width)
    }

    /// The dropout probability at a site: 0 if dropout does not act there.
    pub fn dropout_at(&self, site: DropoutSite) -> f64 {
        if let (
            DropoutSite::Attention,
            Architecture::Encoder {
                attention_dropout, ..
            },
        ) = (site, &self.filled.architecture)
        {
            return *attention_dropout;
        }
        if self.filled.dropout_sites.contains(&site) {
            self.filled.dropout
        } else {
            0.0
        }
    }

    /// Checks that the model can process `tokens` as one sequence.
    ///
    /// # Errors
    /// `tokens` is empty, longer than [`TransformerConfig::longest`], or has an id outside the vocabulary.
    pub fn check_tokens(&self, tokens: &[u32]) -> Result<(), InputError> {
        if tokens.is_empty() {
            return Err(InputError::Empty);
        }
        if let Some(seq_len) = self.longest()
            && tokens.len() > seq_len
        {
            return Err(InputError::TooLong {
                tokens: tokens.len(),
                seq_len,
            });
        }
        match tokens.iter().position(|&id| id as usize >= self.vocab_size) {
            Some(position) => Err(InputError::UnknownToken {
                id: tokens[position],
                position,
                vocab_size: self.vocab_size,
            }),
            None => Ok(()),
        }
    }
}
