//! Fits of synthetic losses, whose law is known.

use emberlm_system::random::SplitMix64;

use super::*;

/// The law of Hoffmann et al. 2022, appendix D.3, in natural logarithms.
const CHINCHILLA: Parametric = Parametric {
    irreducible: 1.69,
    a: 406.4,
    b: 410.7,
    alpha: 0.34,
    beta: 0.28,
};

/// Runs of a law with 7 sizes around the best one of each budget, which grows by 2, and factors on the losses.
fn runs(law: Parametric, budgets: usize, mut factor: impl FnMut() -> f64) -> Vec<Point> {
    let budgets = (0..budgets as i32).map(|number| 1e18 * 2f64.powi(number));
    let sized = budgets.flat_map(|flops| {
        let (best, _) = law.optimum(flops, 6.0);
        (-3..=3).map(move |number| (flops, best * 1.5f64.powi(number)))
    });
    let point = |(flops, parameters): (f64, f64)| {
        let tokens = flops / (6.0 * parameters);
        Point {
            parameters,
            tokens,
            flops,
            loss: law.loss(parameters, tokens) * factor(),
        }
    };
    sized.map(point).collect()
}

/// Factors with a normal deviation of `deviation` in logarithms (Box and Muller 1958).
fn noise(seed: u64, deviation: f64) -> impl FnMut() -> f64 {
    let mut random = SplitMix64::new(seed);
    let mut uniform = move || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    move || {
        let (radius, angle) = ((-2.0 * (1.0 - uniform()).ln()).sqrt(), uniform());
        (deviation * radius * (std::f64::consts::TAU * angle).cos()).exp()
    }
}

fn near(found: f64, expected: f64, tolerance: f64) {
    let error = (found / expected - 1.0).abs();
    assert!(error <= tolerance, "{found} and not {expected}");
}

#[test]
fn losses_without_noise_give_their_law() {
    let laws = [
        CHINCHILLA,
        Parametric {
            irreducible: 0.25,
            a: 30.0,
            b: 3000.0,
            alpha: 0.5,
            beta: 0.6,
        },
    ];
    for law in laws {
        let points = runs(law, 6, || 1.0);
        let free = Parametric::fit(&points, None).expect("a fit");
        let fixed = Parametric::fit(&points, Some(law.irreducible)).expect("a fit");
        for found in [free, fixed] {
            near(found.irreducible, law.irreducible, 1e-4);
            near(found.alpha, law.alpha, 1e-3);
            near(found.beta, law.beta, 1e-3);
            near(found.a, law.a, 1e-2);
            near(found.b, law.b, 1e-2);
        }
    }
}

#[test]
fn parabolas_in_ln_n_give_exact_minima_and_power_laws() {
    let (coefficient, exponent) = (0.09, 0.47);
    let mut points = Vec::new();
    for flops in [1e15, 2e15, 4e15, 8e15f64] {
        let best = coefficient * flops.powf(exponent);
        for x in [-1.4f64, -0.6, 0.1, 0.9] {
            let parameters = best * x.exp();
            points.push(Point {
                parameters,
                tokens: flops / (6.0 * parameters),
                flops,
                loss: 3.0 + 0.2 * x * x,
            });
        }
    }
    let laws = Laws::fit(&points, None, 0, 1);
    for minimum in &laws.minima {
        assert_eq!((minimum.sizes, minimum.kind), (4, MinimumKind::Inside));
        let optimum = minimum.optimum.expect("a minimum");
        near(optimum.loss, 3.0, 1e-9);
        near(
            6.0 * optimum.parameters * optimum.tokens,
            minimum.flops,
            1e-9,
        );
    }
    let optimal = laws.optimal.expect("power laws");
    near(optimal.parameters.exponent, exponent, 1e-9);
    near(optimal.parameters.coefficient, coefficient, 1e-6);
    near(optimal.tokens.exponent, 1.0 - exponent, 1e-9);
}

#[test]
fn the_optimum_of_a_budget_is_its_lowest_loss() {
    let flops = 5.76e23;
    let (best, tokens) = CHINCHILLA.optimum(flops, 6.0);
    near(6.0 * best * tokens, flops, 1e-12);
    let loss = |parameters: f64| CHINCHILLA.loss(parameters, flops / (6.0 * parameters));
    assert!(loss(best) < loss(1.001 * best) && loss(best) < loss(best / 1.001));
}

/// Of 20 samples with noise, at least 16 intervals contain the true exponent: fewer have a probability of 0.3% with intervals
/// that contain it in 95% of all cases.
#[test]
fn intervals_contain_the_true_exponents() {
    let sum = CHINCHILLA.alpha + CHINCHILLA.beta;
    let (mut alpha, mut optimal) = (0, 0);
    for seed in 0..20 {
        let points = runs(CHINCHILLA, 5, noise(seed, 2e-3));
        let laws = Laws::fit(&points, Some(CHINCHILLA.irreducible), 100, seed);
        let contains = |interval: Option<Interval>, value: f64| {
            let Interval { low, high } = interval.expect("an interval");
            assert!(low < high);
            usize::from((low..=high).contains(&value))
        };
        let interval = laws.parametric_interval(|law| law.alpha);
        alpha += contains(interval, CHINCHILLA.alpha);
        let interval = laws.optimal_interval(|laws| laws.parameters.exponent);
        optimal += contains(interval, CHINCHILLA.beta / sum);
    }
    assert!(alpha >= 16 && optimal >= 16, "{alpha} and {optimal} of 20");
}

#[test]
fn resamples_depend_only_on_the_seed() {
    let points = runs(CHINCHILLA, 4, noise(3, 1e-2));
    let interval = |seed| {
        let laws = Laws::fit(&points, None, 30, seed);
        laws.parametric_interval(|law| law.beta)
            .expect("an interval")
    };
    assert_eq!(interval(1), interval(1));
    assert_ne!(interval(1), interval(2));
}

#[test]
fn a_known_law_predicts_the_loss_of_a_larger_budget() {
    let law = CHINCHILLA;
    let points = runs(law, 5, noise(8, 2e-3));
    let fitted = Parametric::fit(&points, None).expect("a fit");
    let largest = points.iter().map(|point| point.flops).fold(0.0, f64::max);
    let (parameters, tokens) = fitted.optimum(4.0 * largest, 6.0);
    near(
        fitted.loss(parameters, tokens),
        law.loss(parameters, tokens),
        0.01,
    );
}

#[test]
fn minima_at_the_edge_and_too_few_sizes_are_flagged() {
    let parabola = |x: f64| Point {
        parameters: 1e6 * x.exp(),
        tokens: 1e8 / x.exp(),
        flops: 6e14,
        loss: 2.0 + (x - 1.0) * (x - 1.0),
    };
    let kind = |xs: &[f64]| {
        let points: Vec<Point> = xs.iter().map(|x| parabola(*x)).collect();
        Minimum::of(&points).kind
    };
    assert_eq!(kind(&[0.0, 0.5, 1.5]), MinimumKind::Inside);
    assert_eq!(kind(&[-1.0, 0.0, 0.5]), MinimumKind::Outside);
    assert_eq!(kind(&[2.0, 3.0, 4.0]), MinimumKind::Outside);
    assert_eq!(kind(&[0.0, 1.5, 1.5]), MinimumKind::TooFewSizes);
    let falling: Vec<Point> = [0.0, 1.0, 2.0]
        .map(|x: f64| Point {
            loss: 5.0 - x - 0.1 * x * x,
            ..parabola(x)
        })
        .into();
    let minimum = Minimum::of(&falling);
    assert_eq!((minimum.kind, minimum.optimum), (MinimumKind::None, None));
    // Power laws need two minima inside.
    let laws = Laws::fit(&falling, None, 10, 1);
    assert_eq!(laws.optimal, None);
}

#[test]
fn runs_that_determine_no_law_are_refused() {
    let points = runs(CHINCHILLA, 1, || 1.0);
    let refused = |points: &[Point], irreducible| {
        let error = Parametric::fit(points, irreducible).expect_err("no fit");
        error.to_string()
    };
    let message = refused(&points[..5], None);
    assert!(message.contains("at least 6 runs (got 5)"), "{message}");
    let mut same = points.clone();
    same.iter_mut().for_each(|point| point.parameters = 1e6);
    let message = refused(&same, None);
    assert!(message.contains("3 model sizes (got 1)"), "{message}");
    let mut same = points.clone();
    same.iter_mut().for_each(|point| point.tokens = 1e9);
    let message = refused(&same, None);
    assert!(message.contains("3 numbers of tokens (got 1)"), "{message}");
    let mut rising = runs(CHINCHILLA, 4, || 1.0);
    for point in &mut rising {
        point.loss = 1.0 + 1e-2 * point.parameters.powf(0.3) + 100.0 * point.tokens.powf(-0.3);
    }
    let message = refused(&rising, None);
    assert!(message.contains("must be above 0 (got -"), "{message}");
    for irreducible in [-1.0, 50.0, f64::NAN] {
        let message = refused(&points, Some(irreducible));
        let expected = format!("(got {irreducible})");
        assert!(message.contains(&expected), "{message}");
    }
    for loss in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        let error = Point { loss, ..points[0] }.checked().expect_err("no loss");
        let expected = format!("`loss` must be finite and above 0 (got {loss})");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn runs_are_grouped_by_budget() {
    let point = |flops| Point {
        flops,
        ..runs(CHINCHILLA, 1, || 1.0)[0]
    };
    let groups = budgets(&[1.01e15, 2e15, 0.99e15, 4.1e15, 1e15].map(point));
    let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
    assert_eq!(sizes, [3, 1, 1]);
}
