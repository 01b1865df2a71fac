"""A client: trains and tests on its own data, of which nothing leaves it."""

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from cadis.algorithm import parts_of
from cadis.flower.client import introduce, local_evaluate, local_train
from cadis.training import choose_device
from cadis_app.task import Task, task_at

app = ClientApp()
app.query()(introduce)


def own_classes(task: Task) -> list[type]:
    """Classes of the parts that the server may name, among them those of the app's own files."""
    return [type(part) for _, part in parts_of(task.config.algorithm)]


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the global model, as the server's method has it."""
    task, data = task_at(context.node_config, context.run_config)
    memory = context.node_config.get("state-dir")
    content = local_train(
        task.model.to(choose_device("auto")),
        data.train,
        message.content,
        own=own_classes(task),
        memory=Path(str(memory)) if memory else None,
    )
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the global model."""
    task, data = task_at(context.node_config, context.run_config)
    model = task.model.to(choose_device("auto"))
    content = local_evaluate(model, data.test, message.content, own=own_classes(task))
    return Message(content, reply_to=message)
