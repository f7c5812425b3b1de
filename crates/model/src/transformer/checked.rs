//! Validated model configuration. `rules` holds the rules, `components` the configurations of components that follow.

mod architecture;
mod components;
mod positions;
mod rules;

use emberlm_kernels::Activation;

use crate::config::{
    Architecture, AttentionKind, Biases, DropoutSite, EncoderHeadConfig, Experts, Family,
    FeedForward, Head, Init, LayerPositions, ModelConfig, ModelKind, Norm, Position, Window,
    Wiring,
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

    /// Checks that the model supports isolated documents ([`crate::Tokens::documents`]).
    ///
    /// # Errors
    /// The attention is linear: its running sums include all earlier tokens.
    pub fn check_documents(&self) -> Result<(), ConfigError> {
        match self.attention() {
            AttentionKind::Softmax { .. } => Ok(()),
            AttentionKind::Linear { .. } => {
                let rule = "must be \"softmax\" for documents to be isolated: linear attention's sums cannot remove a token";
                Err(ConfigError::new("attention.kind", "\"linear\"", rule))
            }
        }
    }

    /// The published family that the model belongs to.
    pub fn family(&self) -> Family {
        self.filled.family
    }

    /// Number of token ids.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The longest sequence, in tokens.
    pub fn seq_len(&self) -> usize {
        self.filled.seq_len
    }

    /// Width of the residual stream.
    pub fn d_model(&self) -> usize {
        self.filled.d_model
    }

    /// Number of blocks.
    pub fn n_layers(&self) -> usize {
        self.filled.n_layers
    }

    /// Query heads per block.
    pub fn heads(&self) -> usize {
        self.filled.heads
    }

    /// Key-value heads per block.
    pub fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// True if queries and keys are normalized per head.
    pub fn qk_norm(&self) -> bool {
        self.filled.qk_norm
    }

    /// Probability of dropping an element during training.
    pub fn dropout(&self) -> f64 {
        self.filled.dropout
    }

    /// Sites where dropout acts.
    pub fn dropout_sites(&self) -> &[DropoutSite] {
        &self.filled.dropout_sites
    }

    /// True if the embeddings are multiplied by √d_model.
    pub fn scale_embedding(&self) -> bool {
        self.filled.scale_embedding
    }

    /// True if the embeddings are normalized before the first block.
    pub fn norm_embedding(&self) -> bool {
        self.filled.norm_embedding
    }

    /// The linear layers that have a bias.
    pub fn bias(&self) -> Biases {
        self.filled.bias
    }

    /// The attention, with its default number of features filled in.
    pub fn attention(&self) -> &AttentionKind {
        &self.filled.attention
    }

    /// The normalization.
    pub fn norm(&self) -> Norm {
        self.filled.norm
    }

    /// The position encoding, with its default dims filled in.
    pub fn position(&self) -> &Position {
        &self.filled.position
    }

    /// The feed-forward layer, with its default width filled in.
    pub fn feed_forward(&self) -> FeedForward {
        self.filled.feed_forward
    }

    /// The mixture of experts, with its default width filled in.
    pub fn experts(&self) -> Option<&Experts> {
        self.filled.experts.as_ref()
    }

    /// The coefficients of the routers' losses; 0 without experts.
    pub fn router_coefficients(&self) -> RouterCoefficients {
        let experts = self.experts();
        experts.map_or_else(RouterCoefficients::default, |experts| RouterCoefficients {
            balance: experts.balance_loss,
            z: experts.z_loss,
        })
    }

    /// The order of sublayers and norms in a block.
    pub fn wiring(&self) -> Wiring {
        self.filled.wiring
    }

    /// The output projection.
    pub fn head(&self) -> Head {
        self.filled.head
    }

    /// Weight initialization.
    pub fn initialization(&self) -> Init {
        self.filled.init
    }

    /// The unchecked configuration, as written to files, with defaults filled in.
    pub fn raw(&self) -> ModelConfig {
        self.filled.clone()
    }

    /// The positions of blocks that differ from those of the other blocks, if any.
    pub fn layer_positions(&self) -> Option<&LayerPositions> {
        self.filled.layer_positions.as_ref()
    }

    /// Hidden width of the feed-forward layer.
    pub fn feed_forward_width(&self) -> usize {
        self.filled.feed_forward.width_for(self.filled.d_model)
    }

    /// The feed-forward layer's activation.
    pub fn activation(&self) -> Activation {
        self.filled.feed_forward.activation
    }

    /// ε of the norms.
    pub fn norm_epsilon(&self) -> f64 {
        self.filled.norm.epsilon()
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

    /// Factor on the outputs of sublayers, if any.
    pub fn residual_scale(&self) -> Option<f64> {
        self.filled.residual_scale
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
