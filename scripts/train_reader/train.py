"""Trains the reader: one process per core (gloo), resumable, a line of figures every 20 seconds.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 \
        python -m scripts.train_reader.train --run RUN --fonts FONTS --plan plan.json

Each phase of the plan is measured in seconds of training. Processes step on their own pages and
average their weights every few steps: on busy cores that costs a fraction of sharing every
gradient. A file named `stop` in the run folder ends all processes with a saved state; starting
again goes on from there.
"""

import argparse
import copy
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import torch
import torch.distributed as dist
from torch import Tensor

from .losses import total_loss
from .pages import Style
from .phases import Phase, load_phases
from .reader_model import Reader, Sizes
from .samples import draw_batch
from .seed import start_from

_LOG_SECONDS, _SAVE_SECONDS = 20.0, 120.0
_AVERAGE_DECAY = 0.998
_SHARE_STEPS = 8  # steps between two averages over the processes


@dataclass(slots=True)
class Progress:
    """Where the run stands; saved with the weights."""

    phase: int = 0
    elapsed: float = 0.0  # seconds of training inside the phase
    step: int = 0
    pages: int = 0
    seconds: float = 0.0  # of training in all


@dataclass(slots=True)
class Meter:
    """Means of the loss parts since the last log line."""

    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, parts: dict[str, float]) -> None:
        for name, value in parts.items():
            self.sums[name] += value
            self.counts[name] += 1

    def line(self) -> str:
        text = " ".join(f"{n} {self.sums[n] / self.counts[n]:.3f}" for n in self.sums)
        self.sums.clear()
        self.counts.clear()
        return text


class Trainer:
    """Owns model, average, optimiser and the run folder of one process."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.run: Path = args.run
        self.run.mkdir(parents=True, exist_ok=True)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.style = Style(args.fonts)
        torch.manual_seed(args.seed)
        self.reader = Reader(Sizes())
        if args.start_from:
            start_from(self.reader, args.start_from, (6, 20))
        self.average = copy.deepcopy(self.reader)
        self.optimizer = _optimizer(self.reader)
        self.progress = Progress()
        self._restore()
        self.reader.to(self.device)
        self.average.to(self.device)

    def _restore(self) -> None:
        path = self.run / "state.pt"
        if path.exists():
            state = torch.load(path, weights_only=True)
            self.reader.load_state_dict(state["reader"])
            self.average.load_state_dict(state["average"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.progress = Progress(**state["progress"])

    def save(self) -> None:
        """Writes the state beside the old one and swaps them."""
        if self.rank:
            return
        fields = Progress.__slots__
        state = {
            "reader": self.reader.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "progress": {name: getattr(self.progress, name) for name in fields},
        }
        torch.save(state, self.run / "state.tmp")
        (self.run / "state.tmp").replace(self.run / "state.pt")

    def log(self, text: str) -> None:
        """One line into the run's log."""
        if self.rank == 0:
            with (self.run / "log.txt").open("a") as out:
                out.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}\n")

    def agree(self, elapsed: float) -> tuple[float, bool]:
        """Rank 0's clock and whether to stop, the same in every process."""
        if self.progress.step % _SHARE_STEPS and self.world > 1:
            return elapsed, False
        stop = (self.run / "stop").exists()
        word = torch.tensor([elapsed, float(stop)], dtype=torch.float64)
        if self.world > 1:
            dist.broadcast(word, 0)
        return word[0].item(), bool(word[1].item())

    def step(self, phase: Phase, started: int) -> dict[str, float]:
        """One optimiser step over one batch per process."""
        progress = self.progress
        choose = random.Random(progress.step)  # the same mix everywhere, so nobody waits
        mix = choose.choices(phase.mixes, [m.share for m in phase.mixes])[0]
        rng = random.Random(f"{progress.step}/{self.rank}/{phase.name}")
        batch = draw_batch(rng, mix, self.style)
        rate = phase.learning_rate(progress.elapsed, progress.step - started)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss, parts = total_loss(self.reader, batch, phase.weights, self.device)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.reader.parameters(), 1.0)
        self.optimizer.step()
        with torch.no_grad():
            pairs = zip(self.average.parameters(), self.reader.parameters(), strict=True)
            decay = min(_AVERAGE_DECAY, progress.step / (progress.step + 10))
            for mean, value in pairs:
                mean.lerp_(value, 1 - decay)
        progress.step += 1
        if self.world > 1 and progress.step % _SHARE_STEPS == 0:
            _share(self.reader.parameters(), self.world)
        progress.pages += mix.batch * self.world
        return {**parts, "rate_e4": rate * 1e4}

    def train(self, phases: list[Phase]) -> None:
        """Runs the phases that are left."""
        started, stop = self.progress.step, False
        while self.progress.phase < len(phases) and not stop:
            stop = self._run_phase(phases[self.progress.phase], started)
            if not stop:
                self.progress.phase += 1
                self.progress.elapsed = 0.0
            self.save()

    def _run_phase(self, phase: Phase, started: int) -> bool:
        """True if the run was told to stop before the phase ended."""
        self.log(f"# phase {phase.name} from {self.progress.elapsed:.0f} s")
        heads = [*self.reader.classify.parameters(), *self.reader.measure.parameters()]
        self.reader.requires_grad_(not phase.heads_only)
        for parameter in heads:
            parameter.requires_grad_(True)
        meter, before = Meter(), self.progress.elapsed
        begin = time.monotonic()
        logged, saved, pages = begin, begin, self.progress.pages
        while True:
            elapsed, stop = self.agree(before + time.monotonic() - begin)
            self.progress.seconds += elapsed - self.progress.elapsed
            self.progress.elapsed = elapsed
            agreed = self.world == 1 or self.progress.step % _SHARE_STEPS == 0
            if agreed and (stop or elapsed >= phase.seconds):
                return stop
            meter.add(self.step(phase, started))
            now = time.monotonic()
            if now - logged > _LOG_SECONDS:
                speed = (self.progress.pages - pages) / (now - logged)
                self.log(
                    f"{phase.name} {elapsed:.0f}s step {self.progress.step} "
                    f"pages {self.progress.pages} ({speed:.1f}/s) {meter.line()}"
                )
                logged, pages = now, self.progress.pages
            if now - saved > _SAVE_SECONDS:
                self.save()
                saved = now


def _optimizer(reader: Reader) -> torch.optim.Optimizer:
    decayed, plain = [], []
    for name, value in reader.named_parameters():
        matrix = value.dim() > 1 and "embed_tokens" not in name and "positions" not in name
        (decayed if matrix else plain).append(value)
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), eps=1e-8, fused=True)


def _share(parameters: Iterable[Tensor], world: int) -> None:
    """Every process gets the mean of the parameters."""
    tensors = [parameter.data for parameter in parameters]
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.all_reduce(flat)
    flat /= world
    for tensor, mean in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="folder of state and log")
    parser.add_argument("--fonts", type=Path, required=True, help="see install_fonts.sh")
    parser.add_argument("--plan", type=Path, default=Path(__file__).with_name("plan.json"))
    parser.add_argument("--start-from", type=Path, help="older checkpoint to take weights from")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    cv2.setNumThreads(1)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
    Trainer(args).train(load_phases(args.plan))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
