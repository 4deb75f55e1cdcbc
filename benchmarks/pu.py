"""Seconds of the grid of positive-unlabeled learning, one call for each task: 40 folds × 36 pairs of rho.

    UGW_DATA=... PYTHONPATH=src python3 -m benchmarks.pu --device cuda

Folds and initial plans are prepared beforehand; the time includes the call and the labels. The last column is the
accuracy at rho1 = rho2 = 2^-5 on the test folds.
"""

import argparse
import warnings

import numpy as np
import torch

import ugw
from ugw.datasets import office_caltech10
from ugw.estimators.pu import label_top_scores
from ugw.experiments import pu, pu_tasks

from .compare import measure


def make_task_inputs(task, domains, protocol, device):
    """Return both batches of 1440 spaces, their rhos and initial plans on the device, and the true labels."""
    x, y, truth, start = pu.make_spaces(task, domains, protocol, protocol.seeds)
    pairs = [(2.0**one, 2.0**two) for one, two in protocol.pairs]
    plans = np.concatenate([start.plans(*pair) for pair in pairs])
    items = torch.arange(len(truth)).repeat(len(pairs))
    spaces = [space.to(torch.float32).take(items).to(device) for space in (x, y)]
    rhos = tuple(torch.tensor(side, device=device).repeat_interleave(len(truth)) for side in zip(*pairs, strict=True))
    return spaces, rhos, torch.as_tensor(plans, dtype=torch.float32, device=device), truth


def solve_task(task, inputs, protocol, now):
    """Return the seconds of the call including labels, the accuracies (36, 40) and the share of converged items."""
    spaces, rhos, plans, truth = inputs
    begin = now()
    result = ugw.solve(*spaces, rho=rhos, eps=2.0**protocol.log_eps, init=plans, solver=pu.SOLVER)
    labels, _ = label_top_scores(torch.as_tensor(result.plan).sum(1).cpu().numpy(), task.prior)
    seconds = now() - begin
    is_correct = labels.reshape(len(protocol.pairs), *truth.shape) == truth
    return seconds, 100.0 * is_correct.mean(2), float(np.mean(torch.as_tensor(result.converged).cpu().numpy()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--tasks", help="as for ugw reproduce pu")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ugw.ConvergenceWarning)
    torch.set_num_threads(1)
    protocol, domains, now, total = pu.Protocol(), office_caltech10(), measure.clock(options.device), 0.0
    for k, task in enumerate(pu_tasks.parse_tasks(options.tasks)):
        inputs = make_task_inputs(task, domains, protocol, options.device)
        if k == 0 and options.device == "cuda":  # compiles
            solve_task(task, inputs, protocol, now)
        seconds, accuracy, converged = solve_task(task, inputs, protocol, now)
        total += seconds
        mean_accuracy = accuracy[protocol.pairs.index((-5, -5)), : protocol.folds].mean()
        print(
            f"{task.name:<24} {seconds:6.2f} s   {mean_accuracy:.1f} % at 2^-5   {converged:.0%} converged", flush=True
        )
    print(f"all                      {total:6.2f} s")


if __name__ == "__main__":
    main()
