"""Simulated electrocardiogram and pulse wave of one latent physiology, for controlled tests.

A class of arousal sets heart rate, breathing, heart-rate variability and the narrowing of vessels;
both modalities are drawn from the same beats. It stands in where no recordings of two modalities
can be shipped, and it can order the ceilings: what one modality shows the other may not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bioxbridge.windows import Recording

CLASSES = ("baseline", "stress", "relaxation")
RATE = 32.0
_SHARES = (0.5, 0.3, 0.2)
_HEART_RATE = (72.0, 88.0, 62.0)  # beats per minute
_BREATHING = (0.25, 0.33, 0.18)  # Hz
_VARIABILITY = (0.05, 0.02, 0.09)  # share of the beat interval
_NARROWING = (0.0, -0.45, 0.25)  # log of the pulse's height


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """Draws recordings of several subjects, one stretch after another, each of one class.

    Args:
        subjects: number of people.
        stretches: stretches per person.
        seconds: length of a stretch.
        noise: standard deviation of the white noise, in units of an R peak.
        separation: scale of the differences between classes; 0 makes them all alike.
        pulse_only: share of the class difference that the pulse wave alone shows (by its height),
            in [0, 1]; heart rate, breathing and variability keep the rest.
        subject_shift: scale of the differences between people.
        seed: of everything.

    Raises:
        ValueError: a number outside its range.
    """

    subjects: int = 12
    stretches: int = 24
    seconds: int = 60
    noise: float = 0.15
    separation: float = 1.0
    pulse_only: float = 0.5
    subject_shift: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("subjects", "stretches", "seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"simulator.{name}: {getattr(self, name)} is not above zero")
        for name in ("noise", "separation", "subject_shift"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"simulator.{name}: {getattr(self, name)} is below zero")
        if not 0 <= self.pulse_only <= 1:
            raise ValueError(f"simulator.pulse_only: {self.pulse_only} is not in [0, 1]")

    def recordings(self) -> list[Recording]:
        """One recording a person, modalities `ECG` and `PPG`, one channel each at 32 Hz."""
        return [self._person(number) for number in range(self.subjects)]

    def _person(self, number: int) -> Recording:
        random = np.random.default_rng((self.seed, number))
        shift = self.subject_shift
        person = {
            "rate": shift * random.normal(0, 6),
            "shape": np.exp(shift * random.normal(0, 0.15, 3)),
            "lag": 0.2 + shift * random.normal(0, 0.03),
            "gains": np.exp(shift * random.normal(0, 0.2, 2)),
        }
        classes = random.choice(len(CLASSES), size=self.stretches, p=_SHARES)
        parts = [self._stretch(int(c), person, random) for c in classes]
        signals = {"ECG": [ecg for ecg, _ in parts], "PPG": [ppg for _, ppg in parts]}
        return Recording(
            name=f"simulated person {number}",
            subject=f"{number:03d}",
            signals={k: np.concatenate(v)[None].astype(np.float32) for k, v in signals.items()},
            rates={"ECG": RATE, "PPG": RATE},
            labels=np.repeat(classes, self.seconds),
            label_rate=1.0,
            class_names=CLASSES,
        )

    def _stretch(
        self, label: int, person: dict[str, Any], random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Both signals of one stretch, (samples,) each."""
        shared = self.separation * (1 - self.pulse_only)

        def of_class(values: tuple[float, ...], scale: float) -> float:
            return values[0] + scale * (values[label] - values[0])

        rate = of_class(_HEART_RATE, shared) + person["rate"] + random.normal(0, 5)
        breathing = of_class(_BREATHING, shared) + random.normal(0, 0.03)
        variability = max(0.0, of_class(_VARIABILITY, shared))
        height = np.exp(of_class(_NARROWING, self.separation) + random.normal(0, 0.2))
        time = np.arange(int(self.seconds * RATE)) / RATE
        beats = self._beats(max(rate, 30.0), max(breathing, 0.05), variability, random)
        breath = np.sin(2 * np.pi * breathing * time)
        since = time[:, None] - beats  # (samples, beats)
        qrs, s_wave, t_wave = (
            gain * np.exp(-0.5 * ((since - delay) / width) ** 2).sum(axis=1)
            for gain, delay, width in zip(
                (1.0, -0.25, 0.3) * person["shape"],
                (0.0, 0.05, 0.25),
                (0.03, 0.03, 0.06),
                strict=True,
            )
        )
        ecg = (1 + 0.15 * breath) * (qrs + s_wave + t_wave) + 0.1 * breath
        pulse = sum(
            gain * np.exp(-0.5 * ((since - person["lag"] - delay) / width) ** 2).sum(axis=1)
            for gain, delay, width in ((1.0, 0.0, 0.09), (0.4, 0.28, 0.12))
        )
        ppg = height * pulse + 0.2 * breath
        ecg, ppg = person["gains"][0] * ecg, person["gains"][1] * ppg
        noise = self.noise * random.normal(size=(2, len(time)))
        return ecg + noise[0], ppg + noise[1]

    def _beats(
        self, rate: float, breathing: float, variability: float, random: np.random.Generator
    ) -> np.ndarray:
        """Times of the beats, from one before the start to one after the end, seconds."""
        beats = [-random.uniform(0, 60 / rate)]
        while beats[-1] < self.seconds + 1:
            swing = 1 + variability * np.sin(2 * np.pi * breathing * beats[-1])
            beats.append(beats[-1] + 60 / rate * swing * (1 + 0.01 * random.normal()))
        return np.array(beats)


def load_simulator(path: Path | None = None) -> list[Recording]:
    """Recordings of a `Simulator` with the options of a YAML file, or its defaults.

    Raises:
        ValueError: names the file and the option that cannot be used.
    """
    if path is None:
        return Simulator().recordings()
    try:
        options = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(
            f"{path}: not readable as YAML ({' '.join(str(error).split())})"
        ) from error
    known = {name: type(value) for name, value in vars(Simulator()).items()}
    if not isinstance(options, dict):
        raise ValueError(f"{path}: holds no options by name")
    for name, value in options.items():
        if name not in known:
            raise ValueError(f"{path}: {name!r} is not one of {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, (int, known[name])):
            raise ValueError(f"{path}: {name}: {value!r} is no {known[name].__name__}")
    try:
        return Simulator(**{k: known[k](v) for k, v in options.items()}).recordings()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
