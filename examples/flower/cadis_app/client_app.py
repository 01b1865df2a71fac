"""A client: trains and tests on its own data, of which nothing leaves it."""

from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from cadis.flower import introduce, local_evaluate, local_train
from cadis.training import choose_device
from cadis_app.task import task_at

app = ClientApp()
app.query()(introduce)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the global model, as the server's method has it."""
    task, data = task_at(context.node_config, context.run_config)
    memory = context.node_config.get("state-dir")
    arrays, metrics = local_train(
        task.model.to(choose_device("auto")),
        data.train,
        message.content.array_records["arrays"],
        message.content.config_records["config"],
        memory=Path(str(memory)) if memory else None,
    )
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the global model."""
    task, data = task_at(context.node_config, context.run_config)
    model = task.model.to(choose_device("auto"))
    metrics = local_evaluate(model, data.test, message.content.array_records["arrays"])
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
