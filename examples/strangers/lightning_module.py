"""An auto-encoder as Lightning's quick start writes it, on made images.

    python lightning_module.py --batch-size 1024 --max-steps 60 --out runs/autoencoder

The author moved from the outputs of `training_epoch_end` to a list of the module's own, for a metric over the whole epoch.
"""

import argparse

import lightning as L
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class LitAutoEncoder(L.LightningModule):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(28 * 28, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3))
        self.decoder = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 28 * 28))
        self.outputs: list[tuple[torch.Tensor, torch.Tensor]] = []

    def training_step(self, batch, batch_idx):
        (images,) = batch
        x = images.float() / 255
        made = self.decoder(self.encoder(x))
        self.outputs.append((x, made))
        return functional.mse_loss(made, x)

    def on_train_epoch_end(self) -> None:
        error = torch.cat([(x - made).abs().mean(dim=1) for x, made in self.outputs])
        self.log("median_error", error.median())
        self.outputs.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=64, help="images of a step")
    parser.add_argument("--max-steps", type=int, default=60, help="when to stop")
    parser.add_argument("--width", type=int, default=64, help="of the hidden layers")
    parser.add_argument("--num-workers", type=int, default=0, help="of the data loader")
    parser.add_argument("--precision", default="32-true", help="as the Trainer takes it")
    parser.add_argument("--seed", type=int, default=7, help="of everything")
    parser.add_argument("--out", default="runs/autoencoder", help="where checkpoints and logs go")
    args = parser.parse_args()

    L.seed_everything(args.seed)
    images = TensorDataset(torch.randint(0, 256, (62_500, 28 * 28), dtype=torch.uint8))
    loader = DataLoader(images, batch_size=args.batch_size, shuffle=True, num_workers=args.num_workers)
    trainer = L.Trainer(max_steps=args.max_steps, precision=args.precision, default_root_dir=args.out, accelerator="cpu")
    trainer.fit(LitAutoEncoder(args.width), loader)


if __name__ == "__main__":
    main()
