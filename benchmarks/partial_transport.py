"""Seconds of the conic distance over the partial transport cone, with initialization. Run with PYTHONPATH=src.

One thread of two shared cores, nonuniform weights, R² against R³:

    n = m        5      10      20
    rho = 0.1    3 s    8 s     28 s
    rho = 1.0    4 s    7 s     17 s

The target is one minute at n = m = 20; n = m = 60, the largest size allowed, takes about four minutes.
"""

import argparse
import time

import numpy as np
import torch

import ugw


def pair(n, seed=0):
    rng = np.random.default_rng(seed)
    weights = rng.random((2, n)) + 0.2
    weights /= weights.sum(1, keepdims=True)
    return [ugw.Space.from_points(rng.random((n, d)), weights=w) for d, w in zip((2, 3), weights, strict=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", type=int, nargs="*", default=[5, 10, 20])
    torch.set_num_threads(1)
    for n in parser.parse_args().sizes:
        for rho in (0.1, 1.0):
            x, y = pair(n)
            start = time.perf_counter()
            r = ugw.solve_conic(x, y, rho=rho, cone=ugw.PartialTransport())
            print(f"n = {n:3d}  rho = {rho:3.1f}  {time.perf_counter() - start:6.1f} s  {r!r}")


if __name__ == "__main__":
    main()
