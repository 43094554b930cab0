"""``hydra --multirun``: its own launcher runs the jobs one after the other in one process."""

import counted
import hydra
from hydra.core.config_store import ConfigStore

ConfigStore.instance().store("config", {"steps": 6})


@hydra.main(version_base=None, config_name="config")
def job(config):
    counted.train(f"steps{config.steps}", steps=config.steps)


if __name__ == "__main__":
    job()
