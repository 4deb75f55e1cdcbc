"""CPU against CUDA: the same objective, plan and status, and the seconds each took. Run with PYTHONPATH=src."""

import time
import warnings

import numpy as np
import torch

import ugw

warnings.simplefilter("ignore", ugw.ConvergenceWarning)


def spaces(n, m, device, dtype):
    rng = np.random.default_rng(n)
    x, y = (torch.tensor(rng.random(shape), dtype=dtype, device=device) for shape in ((n, 3), (m, 2)))
    return ugw.Space.from_points(x).scaled("max"), ugw.Space.from_points(y).scaled("max")


def timed(call):
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result, time.perf_counter() - start


CASES = {
    "ugw": {"rho": 1.0, "eps": 1e-2},
    "unequal rhos": {"rho": (0.1, 2.0), "eps": 1e-2},
    "semi-relaxed": {"rho": (float("inf"), 1.0), "eps": 1e-2},
    "balanced": {"rho": float("inf"), "eps": 1e-2},
    "per item": {"rho": np.array([0.1, 1.0, 10.0]), "eps": np.array([1e-2, 1e-3, 1e-2])},
    "eps = 0": {"rho": 1.0, "eps": 0.0},
}


def parity(device):
    print(
        f"{'case':<14} {'dtype':<8} {'cpu value':>14} {device + ' value':>14} {'plan L1':>9} "
        f"{'cpu s':>7} {device + ' s':>7}"
    )
    for name, options in CASES.items():
        for dtype in (torch.float64, torch.float32):
            one, cpu = timed(lambda: ugw.solve(*spaces(60, 50, "cpu", dtype), init="product", **options))  # noqa: B023
            two, gpu = timed(lambda: ugw.solve(*spaces(60, 50, device, dtype), init="product", **options))  # noqa: B023
            off = (one.plan - two.plan.cpu()).abs().sum() / one.plan.abs().sum()
            values = [float(torch.as_tensor(r.value).double().sum()) for r in (one, two)]
            print(
                f"{name:<14} {str(dtype)[6:]:<8} {values[0]:>14.8f} {values[1]:>14.8f} {float(off):>9.1e} "
                f"{cpu:>7.2f} {gpu:>7.2f} {one.plan.device.type}/{two.plan.device.type}"
            )


def sizes(device):
    for n in (200, 1000, 4000) if device == "cuda" else (200,):
        for dtype in (torch.float32, torch.float64):
            x, y = spaces(n, n, device, dtype)
            r, seconds = timed(lambda: ugw.solve(x, y, rho=1.0, eps=1e-2))  # noqa: B023
            print(f"n = {n}, {str(dtype)[6:]}: {r}, {seconds:.2f} s")


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(torch.__version__, torch.cuda.get_device_name() if device == "cuda" else "no CUDA device: CPU against itself")
    parity(device)
    sizes(device)
