//! A template in the style of each call format.

use crate::tools::ToolFormat;

/// Templates that write calls as published ones of each format do, without system and user messages.
pub const TEMPLATES: [(&str, &str); 19] = [
    (
        "Hermes",
        "{% for call in m.tool_calls %}{{ '\n' if not loop.first }}<tool_call>\n{\"name\": \"{{ call.function.name }}\", \
         \"arguments\": {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}",
    ),
    (
        "Qwen3-Coder",
        "{% for call in m.tool_calls %}{{ '\n' if not loop.first }}{{ '<tool_call>\n<function=' + call.function.name + '>\n' }}\
         {% for k, v in call.function.arguments | items %}{{ '<parameter=' + k + '>\n' }}{{ v if v is string else v | tojson }}\
         {{ '\n</parameter>\n' }}{% endfor %}{{ '</function>\n</tool_call>' }}{% endfor %}",
    ),
    (
        "GLM 4.7",
        "{% for call in m.tool_calls %}<tool_call>{{ call.function.name }}{% for k, v in call.function.arguments | items %}\
         <arg_key>{{ k }}</arg_key><arg_value>{{ v if v is string else v | tojson }}</arg_value>{% endfor %}</tool_call>{% endfor %}",
    ),
    (
        "GLM 4.5",
        "{% for call in m.tool_calls %}{{ '\n' if not loop.first }}<tool_call>{{ call.function.name + '\n' }}\
         {% for k, v in call.function.arguments | items %}<arg_key>{{ k }}</arg_key>\n<arg_value>\
         {{ v if v is string else v | tojson }}{{ '</arg_value>\n' }}{% endfor %}</tool_call>{% endfor %}",
    ),
    (
        "Seed-OSS",
        "{% for call in m.tool_calls %}{{ '\n' if not loop.first }}{{ '<seed:tool_call>\n<function=' + call.function.name + '>\n' }}\
         {% for k, v in call.function.arguments | items %}<parameter={{ k }}>{{ v if v is string else v | tojson }}\
         {{ '</parameter>\n' }}{% endfor %}{{ '</function>\n</seed:tool_call>' }}{% endfor %}",
    ),
    (
        "MiniMax",
        "{{ '<minimax:tool_call>\n' }}{% for call in m.tool_calls %}{{ '<invoke name=\"' + call.function.name + '\">\n' }}\
         {% for k, v in call.function.arguments | items %}<parameter name=\"{{ k }}\">{{ v if v is string else v | tojson }}\
         {{ '</parameter>\n' }}{% endfor %}{{ '</invoke>\n' }}{% endfor %}{{ '</minimax:tool_call>' }}",
    ),
    (
        "FunctionGemma",
        "{% for call in m.tool_calls %}<start_function_call>call:{{ call.function.name ~ '{' }}\
         {% for k, v in call.function.arguments | items %}{{ k }}:{{ value(v, '<escape>') }}\
         {{ ',' if not loop.last }}{% endfor %}}<end_function_call>{% endfor %}",
    ),
    (
        "Gemma 4",
        "{% for call in m.tool_calls %}<|tool_call>call:{{ call.function.name ~ '{' }}\
         {% for k, v in call.function.arguments | items %}{{ k }}:{{ value(v, '<|\"|>') }}\
         {{ ',' if not loop.last }}{% endfor %}}<tool_call|>{% endfor %}",
    ),
    (
        "Command R7B",
        "{{ '<|START_ACTION|>[\n' }}{% for call in m.tool_calls %}{{ '    {\"tool_call_id\": \"' ~ loop.index0 }}\", \
         \"tool_name\": \"{{ call.function.name }}\", \"parameters\": {{ call.function.arguments | tojson }}}\
         {{ ',\n' if not loop.last else '\n' }}{% endfor %}]<|END_ACTION|>",
    ),
    (
        "Phi-4-mini, template of llama",
        "{% for call in m.tool_calls %}<|tool_call|>{\"name\": \"{{ call.function.name }}\", \
         \"arguments\": {{ call.function.arguments | tojson }}}<|/tool_call|>{% endfor %}",
    ),
    ("Apriel", "<tool_calls>[{{ list }}]</tool_calls>"),
    ("Granite 3", "<|tool_call|>[{{ list }}]"),
    ("Phi-4-mini, template of vLLM", "functools[{{ list }}]"),
    (
        "gpt-oss",
        "{# <|start|>assistant<|channel|>analysis<|message|> #}{% for call in m.tool_calls %}<|channel|>commentary to=functions.\
         {{ call.function.name }} <|constrain|>json<|message|>{{ call.function.arguments | tojson }}{% endfor %}",
    ),
    (
        "Llama 3.1",
        "{% for call in m.tool_calls %}{\"name\": \"{{ call.function.name }}\", \"parameters\": \
         {{ call.function.arguments | tojson }}}{% endfor %}",
    ),
    (
        "Mistral, tokenizer version 11",
        "{% for call in m.tool_calls %}[TOOL_CALLS]{{ call.function.name }}[CALL_ID]00000000{{ loop.index0 }}[ARGS]\
         {{ call.function.arguments | tojson }}{% endfor %}",
    ),
    (
        "Mistral, tokenizer version 13",
        "{% for call in m.tool_calls %}[TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}{% endfor %}",
    ),
    ("Mistral, tokenizer version 3", "[TOOL_CALLS] [{{ list }}]"),
    ("Mistral, byte-level", "[TOOL_CALLS][{{ list }}]"),
];

/// The calls as a JSON list.
const LIST: &str = "{% set ns = namespace(list='') %}{% for call in m.tool_calls %}{% set ns.list = ns.list ~ (', ' if not loop.first) ~ \
    '{\"name\": \"' ~ call.function.name ~ '\", \"arguments\": ' ~ (call.function.arguments | tojson) ~ '}' %}{% endfor %}\
    {% set list = ns.list %}";

/// A value whose strings are between `q`.
const QUOTED: &str = "{% macro value(v, q) %}{% if v is string %}{{ q ~ v ~ q }}{% elif v is mapping %}{{ '{' }}\
    {% for k, x in v | items %}{{ k }}:{{ value(x, q) }}{{ ',' if not loop.last }}{% endfor %}{{ '}' }}{% elif v is sequence %}\
    [{% for x in v %}{{ value(x, q) }}{{ ',' if not loop.last }}{% endfor %}]{% else %}{{ v | tojson }}{% endif %}{% endmacro %}";

/// The source of a template, and its format.
pub fn template(models: &str, calls: &str) -> (String, &'static ToolFormat) {
    let source = format!(
        "{{% if tools %}}{{{{ tools }}}}{{% endif %}}{{% for m in messages %}}{LIST}{QUOTED}{calls}{{% endfor %}}"
    );
    let format = ToolFormat::of_template(&source).unwrap();
    assert!(
        format.models().starts_with(models),
        "{models}: {}",
        format.models()
    );
    (source, format)
}
