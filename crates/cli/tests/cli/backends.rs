//! `--backend`.

use super::support::Sandbox;

#[test]
fn an_unknown_backend_is_refused_with_the_choices() {
    let ran = Sandbox::new().words("generate m --backend tpu");
    assert_eq!(ran.code, Some(2));
    insta::assert_snapshot!(ran.stderr, @r"
    error: invalid value 'tpu' for '--backend <NAME>'
      [possible values: flex, ndarray, wgpu, vulkan, metal, cuda, rocm]

      tip: a similar value exists: 'wgpu'

    For more information, try '--help'.
    ");
}

// No test builds with rocm.
#[test]
fn a_backend_that_is_not_compiled_says_how_to_get_it() {
    for command in [
        "generate m",
        "eval m --data d",
        "logits m --tokens 1 --out f",
    ] {
        let ran = Sandbox::new().words(&format!("{command} --backend rocm"));
        assert_eq!(ran.code, Some(2));
        let expected = "error: this binary was built without the rocm backend\n\
                        hint: build with: cargo run --release --features rocm -- …\n\
                        hint: or choose one that is there: --backend flex";
        assert!(ran.stderr.starts_with(expected), "{}", ran.stderr);
    }
}
