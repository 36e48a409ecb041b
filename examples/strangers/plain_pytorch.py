"""An image classifier as the first PyTorch tutorials write it, on made images.

    python plain_pytorch.py --batch-size 16 --workers 2

The author keeps the batches that the model saw, to look at them later.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(28 * 28, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(functional.relu(self.fc1(torch.flatten(x, 1))))


def train(args: argparse.Namespace, model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, epoch: int) -> list:
    seen = []
    model.train()
    for index, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        seen.append((images, labels))
        if index % args.log_interval == 0:
            done = index * len(images)
            print(f"Train Epoch: {epoch} [{done}/{len(loader.dataset)} ({100 * index / len(loader):.0f}%)]\tLoss: {loss.item():.6f}")
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description="PyTorch classifier")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="input batch size for training (default: 64)")
    parser.add_argument("--epochs", type=int, default=1, metavar="N", help="number of epochs to train (default: 1)")
    parser.add_argument("--images", type=int, default=12_000, metavar="N", help="how many images are made (default: 12000)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes that load data (default: 2)")
    parser.add_argument("--lr", type=float, default=0.05, metavar="LR", help="learning rate (default: 0.05)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="random seed (default: 1)")
    parser.add_argument("--log-interval", type=int, default=10, metavar="N", help="how many batches to wait before logging training status")
    parser.add_argument("--save-model", action="store_true", help="for saving the current model")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    data = TensorDataset(torch.rand(args.images, 1, 28, 28), torch.randint(0, 10, (args.images,)))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=args.workers)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        seen = train(args, model, loader, optimizer, epoch)
        print(f"epoch {epoch}: brightest image {max(float(images.mean()) for images, _ in seen):.3f}")
    if args.save_model:
        torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
