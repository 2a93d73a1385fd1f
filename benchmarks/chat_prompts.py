"""Questions as the router would render them for a leaf."""

from typing import cast

from zooserve.catalogue import load_catalogue
from zooserve.settings import Settings
from zooserve_router.chat.asking import ask_of_conversation
from zooserve_router.chat.generation import Conversation, Generation, Sampling
from zooserve_router.chat.models import ChatBackend, ChatModel, load_chat_models

__all__ = ["SYSTEM_PROMPT", "chat_models", "greedy_generation"]

SYSTEM_PROMPT = "You are a helpful assistant."


def chat_models(settings: Settings) -> dict[str, ChatModel]:
    """The enabled chat models by name, with template and tokenizer where they have them, and with no backend."""
    catalogue = load_catalogue(settings.catalogue).enabling(settings.models)
    return dict(
        load_chat_models(catalogue, settings.repository, settings.router, lambda model: cast("ChatBackend", None))
    )


async def greedy_generation(chat: ChatModel, question: str, max_tokens: int) -> Generation:
    """What the router would send to the leaf for this question."""
    messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": question}]
    greedy = Conversation(messages, Sampling(temperature=0.0, seed=1))
    return cast("Generation", (await ask_of_conversation(chat, greedy, max_tokens)).work)
