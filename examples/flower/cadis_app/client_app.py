"""ClientApp: train and evaluate on the data of this node, which never leave it."""

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from cadis.algorithm import list_parts
from cadis.flower.client import introduce, local_evaluate, local_train
from cadis.training import choose_device
from cadis_app.task import RunSetup, load_client_setup

app = ClientApp()
app.query()(introduce)


def list_part_classes(setup: RunSetup) -> list[type]:
    """Return the classes of all parts of the algorithm, including your own parts."""
    return [type(part) for _, part in list_parts(setup.config.algorithm)]


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the global model with the method of the server."""
    setup, data = load_client_setup(context.node_config, context.run_config)
    state_dir = context.node_config.get("state-dir")
    content = local_train(
        setup.model.to(choose_device("auto")),
        data.train,
        message.content,
        custom_classes=list_part_classes(setup),
        state_dir=Path(str(state_dir)) if state_dir else None,
    )
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the global model."""
    setup, data = load_client_setup(context.node_config, context.run_config)
    model = setup.model.to(choose_device("auto"))
    content = local_evaluate(
        model, data.test, message.content, custom_classes=list_part_classes(setup)
    )
    return Message(content, reply_to=message)
