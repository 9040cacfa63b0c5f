import pytest
import torch

torch.set_num_threads(1)  # several would spin in wait for each other wherever cores are shared


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
