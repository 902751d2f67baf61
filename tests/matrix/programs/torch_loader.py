"""torch alone: training from a DataLoader with a worker for each CPU."""

import os

import torch
from counts import tell
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    torch.manual_seed(1)
    inputs = (torch.arange(512 * 16) % 11).reshape(512, 16) / 11
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=32, num_workers=os.cpu_count())
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch, target in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch), target)
        loss.backward()
        optimizer.step()
    print(f"{loss.item():.4f}")
    matrix = (torch.arange(600 * 600) % 5).reshape(600, 600).double()
    print(int((matrix @ matrix).sum()))
    tell(made={"loader workers": loader.num_workers, "torch threads": torch.get_num_threads()})
