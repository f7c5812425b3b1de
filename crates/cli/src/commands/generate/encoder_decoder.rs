//! `emberlm generate` with an encoder–decoder: the prompt is the source, and the target is shown.

use burn::tensor::Device;
use emberlm::CONTINUATION_TOKENS;
use emberlm_checkpoint::{EncoderDecoderModel, ModelKind};
use emberlm_generate::{
    BeamOptions, ChooserConfig, GenerateOptions, SamplingDefaults, TargetBeams, TargetGenerator,
    beam_search,
};
use emberlm_kernels::TrainingBackend;
use emberlm_model::WeightFormat;
use emberlm_tokenizer::StopStrings;
use emberlm_trainer::fit::InferenceWork;

use super::sampling::Sampling;
use super::speed::Stopwatch;
use super::writer::Writer;
use super::{GenerateArgs, beams};
use crate::backend::Job;
use crate::cache_arg;
use crate::console;
use crate::error::{CliError, warn};
use crate::progress;

/// Generates the target of a source.
pub fn run(args: GenerateArgs) -> Result<(), CliError> {
    refuse_unsupported(&args)?;
    let kind = ModelKind::EncoderDecoder;
    cache_arg::check_kind(args.cache.cache, kind, &args.model)?;
    let backend = args.backend.choose()?;
    let model = EncoderDecoderModel::of(args.adapter.open(&args.model)?)?;
    let source = source(&args, &model)?;
    if !args.stop.is_empty() {
        super::choice::with_text(model.tokenizer(), &args.model)?;
    }
    let (defaults, ignored) = model.sampling_defaults();
    ignored.iter().for_each(|ignored| warn(ignored));
    let stop_tokens = model.stop_tokens();
    let method = match args.beams {
        Some(count) => {
            let options = beams::options(&args, count, defaults.max_new_tokens, stop_tokens);
            options.check(model.config().vocab_size())?;
            Method::Beams(options)
        }
        None => Method::Tokens(choice(&args, &defaults, stop_tokens)),
    };
    let (targets, tokens) = match &method {
        Method::Beams(options) => (options.beams, options.max_new_tokens),
        Method::Tokens(options) => (1, options.max_new_tokens),
    };
    let work = InferenceWork::targets(targets, tokens, source.len());
    let guard = args.memory.guard(backend);
    guard.check_inference("generating", &[(model.config(), work)], &[])?;
    backend.run(Target {
        args: &args,
        model: &model,
        source,
        method,
    })?
}

/// The options of a choice token by token.
fn choice(
    args: &GenerateArgs,
    defaults: &SamplingDefaults,
    stop_tokens: Vec<u32>,
) -> GenerateOptions {
    let sampling = Sampling::resolve(
        &args.choice,
        args.max_new_tokens,
        defaults,
        CONTINUATION_TOKENS,
    );
    if args.verbose {
        console::note(&sampling);
    }
    let chooser = ChooserConfig {
        logit_bias: args.choice.logit_bias.clone(),
        top_logprobs: args.logprobs,
        ..ChooserConfig::default()
    };
    GenerateOptions {
        max_new_tokens: sampling.max_new_tokens.value,
        stop_tokens,
        chooser: sampling.apply(chooser),
        ..GenerateOptions::default()
    }
}

/// Returns an error for an option that has no effect on an encoder–decoder.
fn refuse_unsupported(args: &GenerateArgs) -> Result<(), CliError> {
    let packed = args
        .weights
        .weights
        .is_some_and(|format| format != WeightFormat::F32);
    let given = [
        ("--draft", args.draft.is_some()),
        ("--weights", packed),
        ("--json-schema", args.choice.json_schema.is_some()),
        ("--regex", args.choice.regex.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            let message = format!("{option} is not supported with an encoder–decoder");
            Err(CliError::new(message).hint(format!("leave {option} out")))
        }
        None => Ok(()),
    }
}

/// The token ids of the source.
fn source(args: &GenerateArgs, model: &EncoderDecoderModel) -> Result<Vec<u32>, CliError> {
    if let Some(tokens) = &args.tokens {
        return Ok(tokens.clone());
    }
    let Some(text) = &args.prompt else {
        let path = args.model.display();
        let message = format!("{path} is an encoder–decoder, which needs a source text");
        return Err(CliError::new(message).hint("give one: --prompt TEXT"));
    };
    crate::model::needed(model.tokenizer(), &args.model)?;
    Ok(model.encode(text)?)
}

enum Method {
    Tokens(GenerateOptions),
    Beams(BeamOptions),
}

struct Target<'a> {
    args: &'a GenerateArgs,
    model: &'a EncoderDecoderModel,
    source: Vec<u32>,
    method: Method,
}

impl Job for Target<'_> {
    type Output = Result<(), CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let Self {
            args,
            model,
            source,
            method,
        } = self;
        let sign = progress::loading(&args.model);
        let loaded = model.load::<B::InnerBackend>(&device)?;
        drop(sign);
        let options = match method {
            Method::Beams(options) => {
                let mut beams = TargetBeams::new(&loaded, &source, options.max_new_tokens)?;
                let found = beam_search(&mut beams, &options)?;
                return beams::show(&found, model.tokenizer(), &[], args);
            }
            Method::Tokens(options) => options,
        };
        let stops = StopStrings::new(&args.stop)?;
        let logprobs = args.logprobs.is_some();
        let mut writer = Writer::new(model.tokenizer(), &[], stops, args.json, logprobs);
        let mut watch = Stopwatch::start();
        let mut generator = TargetGenerator::new(&loaded, &source, &options)?;
        while !writer.is_stopped() && generator.next().transpose()?.is_some() {
            watch.token();
            writer.write(generator.chosen())?;
        }
        writer.finish(generator.finish(), None)?;
        if args.verbose {
            let speed = watch.speed(source.len());
            console::note(format_args!("source: {}", speed.of_prompt()));
            console::note(format_args!("generated: {}", speed.of_tokens()));
        }
        Ok(())
    }
}
