"""Steps of the large model with one thing done in another way: what is behind a switch until it was measured here."""
from gpu_checks import models
from gpu_checks.runs import attempt, train

# Environment, and what of models.ds_config(), beside the run as it is.
VARIANTS = {
    "as it is": ({}, {}),
    "products by cublasLt": ({"TORCH_BLAS_PREFER_CUBLASLT": 1}, {}),
}


def run(setup, record, shape):
    """One table, and for each a check that the losses are near those of the run as it is."""
    rows, losses, usual = [], None, None
    for name, (environment, config) in VARIANTS.items():
        slug = name.replace(" ", "-")
        path = models.ds_config(setup.out / "runs" / f"variant-{slug}.json", 4, **config)
        found = attempt(record, name, lambda: train(setup, shape, f"variant-{slug}", path, steps=12, micro_batch=4,
                                                    env=environment, limit=60))
        if not found:
            continue
        losses, usual = losses or found["losses"], usual or found["step_s"]
        apart = max(abs(a - b) for a, b in zip(found["losses"], losses))
        record.check(name, apart < 0.05, f"{1e3 * found['step_s']:.1f} ms, losses {apart:.1e} apart", f"losses {apart:.1e} apart")
        rows.append([name, f"{1e3 * found['step_s']:.1f}", f"{found['step_s'] / usual:.3f}", f"{apart:.1e}"])
    record.table(f"{shape.name}, 4 x {shape.seq} tokens, one thing done in another way",
                 ["run", "step ms", "of the run as it is", "max loss diff"], rows)
