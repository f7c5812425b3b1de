//! The built-in templates.

/// A template's name and source.
pub(crate) type Builtin = (&'static str, &'static str);

/// OpenAI's ChatML, as `transformers` has it: `<|im_start|>role\ncontent<|im_end|>\n`.
pub(crate) const CHATML: Builtin = ("chatml", include_str!("templates/chatml.jinja"));

/// Llama 3's, as its model card describes it: `<|begin_of_text|>`, then for each message
/// `<|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>`, contents without blanks around them.
pub(crate) const LLAMA3: Builtin = ("llama3", include_str!("templates/llama3.jinja"));

/// All of them.
pub(crate) const ALL: [Builtin; 2] = [CHATML, LLAMA3];
