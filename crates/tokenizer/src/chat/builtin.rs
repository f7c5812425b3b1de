//! The built-in templates.

/// The name and source of a template.
pub(crate) type Builtin = (&'static str, &'static str);

/// OpenAI's ChatML, as in `transformers`: `<|im_start|>role\ncontent<|im_end|>\n`.
pub(crate) const CHATML: Builtin = ("chatml", include_str!("templates/chatml.jinja"));

/// Llama 3's template, as in its model card: `<|begin_of_text|>`, then for each message
/// `<|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>`, with trimmed contents.
pub(crate) const LLAMA3: Builtin = ("llama3", include_str!("templates/llama3.jinja"));

/// All built-in templates.
pub(crate) const ALL: [Builtin; 2] = [CHATML, LLAMA3];
