//! TEMPORARY.
use burn::backend::Autodiff;
use burn::tensor::{Distribution, Tensor};
use burn_flex::Flex;
use emberlm_kernels::{Activation, Backend};
use emberlm_model::config::FeedForwardKind;
use emberlm_model::nn::{FeedForwardConfig, MixtureConfig};
use std::time::Instant;

type Training = Autodiff<Flex>;

#[test]
#[ignore]
fn speed() {
    for (d, width, count, active) in [
        (512, 1024, 8, 2),
        (768, 2048, 8, 2),
        (512, 256, 64, 8),
        (768, 768, 32, 4),
    ] {
        let config = |width| FeedForwardConfig {
            kind: FeedForwardKind::Gated,
            activation: Activation::Silu,
            ..FeedForwardConfig::new(d, width)
        };
        let device = Default::default();
        let dense = config(width * active).init::<Training>(&device);
        let mixture = MixtureConfig::new(config(width), count, active).init::<Training>(&device);
        for tokens in [1usize, 16, 256, 1024, 4096] {
            let x = Tensor::<Training, 3>::random(
                [1, tokens, d],
                Distribution::Normal(0.0, 1.0),
                &device,
            );
            let mut best = [f64::INFINITY; 4];
            for _ in 0..(if tokens > 1000 { 5 } else { 20 }) {
                Flex::run(|| {
                    use burn::module::AutodiffModule;
                    let (dv, mv) = (dense.valid(), mixture.valid());
                    let xi = x.clone().inner();
                    let t = Instant::now();
                    let _ = dv.forward(xi.clone(), Some(xi.clone()));
                    best[0] = best[0].min(t.elapsed().as_secs_f64());
                    let t = Instant::now();
                    let _ = mv.forward(xi.clone(), Some(xi.clone()), None);
                    best[1] = best[1].min(t.elapsed().as_secs_f64());
                    if tokens > 16 {
                        let xt = x.clone().require_grad();
                        let t = Instant::now();
                        let _ = (dense.forward(xt.clone(), Some(xt.clone())) * x.clone())
                            .sum()
                            .backward();
                        best[2] = best[2].min(t.elapsed().as_secs_f64());
                        let xt = x.clone().require_grad();
                        let t = Instant::now();
                        let _ = (mixture.forward(xt.clone(), Some(xt.clone()), None) * x.clone())
                            .sum()
                            .backward();
                        best[3] = best[3].min(t.elapsed().as_secs_f64());
                    }
                });
            }
            println!(
                "d {d} width {width} {active}/{count} tokens {tokens}: prompt dense {:.3} ms mixture {:.3} ms ratio {:.2}; training {:.3} {:.3} ratio {:.2}",
                best[0] * 1e3,
                best[1] * 1e3,
                best[0] / best[1],
                best[2] * 1e3,
                best[3] * 1e3,
                best[2] / best[3]
            );
        }
    }
}
