"""A diffusion model (Ho et al. 2020) of small images: a network that finds the noise in an image, and makes images out of noise."""

import math

import numpy as np
import torch
from torch import nn

SIDE, STEPS, WIDTH = 8, 50, 32
KEPT = torch.cumprod(1 - torch.linspace(1e-4, 0.2, STEPS), dim=0)
"""Share of the image's variance that is left after each step of noise."""


class Denoiser(nn.Module):
    """Convolutions at two resolutions, with a skip connection; the step of noise enters as sines and cosines."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.enter = nn.Conv2d(1, WIDTH, 3, padding=1)
        self.down = nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.up = nn.ConvTranspose2d(WIDTH, WIDTH, 2, stride=2)
        self.leave = nn.Sequential(nn.Conv2d(2 * WIDTH, WIDTH, 3, padding=1), nn.SiLU(), nn.Conv2d(WIDTH, 1, 1))

    def forward(self, images: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """images (rows, 1, side, side), steps (rows,) -> noise of the images' shape."""
        angles = steps[:, None] * torch.exp(-math.log(STEPS) * torch.arange(8, device=steps.device) / 8)
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=1).to(images.dtype))[:, :, None, None]
        wide = nn.functional.silu(self.enter(images) + time)
        low = nn.functional.silu(self.middle(nn.functional.silu(self.down(wide) + time)))
        return self.leave(torch.cat([wide, self.up(low)], dim=1))


class Denoising:
    def model(self):
        return Denoiser()

    def collate(self, rows):
        generators = [row.generator() for row in rows]  # of the row: the same noise on any number of workers
        steps = torch.cat([torch.randint(STEPS, (1,), generator=each) for each in generators])
        noise = torch.stack([torch.randn(1, SIDE, SIDE, generator=each) for each in generators])
        pixels = np.stack([np.frombuffer(row["image"], np.uint8) for row in rows]).reshape(-1, 1, SIDE, SIDE)
        kept = KEPT[steps][:, None, None, None]
        noisy = kept.sqrt() * (torch.tensor(pixels) / 127.5 - 1) + (1 - kept).sqrt() * noise
        return {"noisy": noisy, "steps": steps, "noise": noise}

    def loss(self, model, batch):
        return nn.functional.mse_loss(model(batch["noisy"], batch["steps"]), batch["noise"])

    def predict(self, model, batch):
        """An image made of each row's noise, by going all steps back (DDIM, Song et al. 2021)."""
        images = batch["noise"]
        for step in range(STEPS - 1, -1, -1):
            noise = model(images, torch.full((len(images),), step, device=images.device))
            clean = ((images - (1 - KEPT[step]).sqrt() * noise) / KEPT[step].sqrt()).clamp(-1, 1)
            before = KEPT[step - 1] if step else torch.ones(())
            images = before.sqrt() * clean + (1 - before).sqrt() * noise
        return [{"image": each.flatten().tolist()} for each in images]
