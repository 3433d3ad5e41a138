"""Google's Python client against the local Pub/Sub server, as a black box.

Run with PUBSUB_EMULATOR_HOST set to the server's address; needs the package google-cloud-pubsub. Each check prints one
line; the exit code is 0 when all of them passed.
"""

import datetime
import sys
import threading
import traceback
import uuid

from google.api_core.exceptions import AlreadyExists, InvalidArgument, NotFound
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from google.cloud.pubsub_v1.types import BatchSettings, FlowControl, PublisherOptions

PROJECT = "blackbox"
TIMEOUT = 30

publisher = pubsub_v1.PublisherClient(
    batch_settings=BatchSettings(max_messages=10, max_latency=0.01),
    publisher_options=PublisherOptions(enable_message_ordering=True),
)
subscriber = pubsub_v1.SubscriberClient()


def new_topic():
    topic = publisher.topic_path(PROJECT, f"topic-{uuid.uuid4().hex}")
    publisher.create_topic(name=topic)
    return topic


def new_subscription(topic, **settings):
    subscription = subscriber.subscription_path(PROJECT, f"sub-{uuid.uuid4().hex}")
    subscriber.create_subscription(request={"name": subscription, "topic": topic, **settings})
    return subscription


def pull(subscription, count):
    """Messages by unary Pull until there are `count`."""
    received = []
    while len(received) < count:
        response = subscriber.pull(subscription=subscription, max_messages=count - len(received), timeout=TIMEOUT)
        received.extend(response.received_messages)
    return received


def pull_nothing(subscription):
    response = subscriber.pull(subscription=subscription, max_messages=10, return_immediately=True, timeout=TIMEOUT)
    return len(response.received_messages) == 0


def listen(subscription, handle, is_done, at_end=lambda: None, **flow):
    """Receives by StreamingPull, calling `handle` per message, until `is_done()`; `at_end` runs before it closes."""
    done = threading.Event()

    def callback(message):
        handle(message)
        if is_done():
            done.set()

    future = subscriber.subscribe(subscription, callback=callback, flow_control=FlowControl(**flow))
    try:
        assert done.wait(TIMEOUT), "not everything arrived in time"
        at_end()
    finally:
        future.cancel()
        future.result(timeout=TIMEOUT)


def check_publish_and_pull():
    topic = new_topic()
    subscription = new_subscription(topic)
    message_id = publisher.publish(topic, bytes(range(256)), kind="binary").result(TIMEOUT)
    (received,) = pull(subscription, 1)
    assert received.message.message_id == message_id
    assert received.message.data == bytes(range(256))
    assert dict(received.message.attributes) == {"kind": "binary"}
    subscriber.acknowledge(subscription=subscription, ack_ids=[received.ack_id])
    assert pull_nothing(subscription)


def check_errors():
    topic = new_topic()
    for error, call in [
        (AlreadyExists, lambda: publisher.create_topic(name=topic)),
        (NotFound, lambda: publisher.get_topic(topic=topic + "x")),
        (InvalidArgument, lambda: new_subscription(topic, ack_deadline_seconds=5)),
        (InvalidArgument, lambda: new_subscription(topic, filter="nonsense")),
    ]:
        try:
            call()
        except error:
            continue
        raise AssertionError(f"{error.__name__} was not raised")


def check_ordered_streaming_pull():
    topic = new_topic()
    subscription = new_subscription(topic, enable_message_ordering=True)
    keys = ["a", "b", "c"]
    futures = [publisher.publish(topic, str(n).encode(), ordering_key=key) for n in range(50) for key in keys]
    for future in futures:
        future.result(TIMEOUT)
    seen = {key: [] for key in keys}

    def handle(message):
        seen[message.ordering_key].append(int(message.data))
        message.ack()

    listen(subscription, handle, lambda: sum(map(len, seen.values())) == 150, max_messages=20)
    for key in keys:
        assert seen[key] == list(range(50)), f"key {key} out of order: {seen[key]}"


def check_exactly_once_ack():
    topic = new_topic()
    subscription = new_subscription(topic, enable_exactly_once_delivery=True)
    for n in range(20):
        publisher.publish(topic, str(n).encode()).result(TIMEOUT)
    outcomes = []

    def handle(message):
        outcomes.append(message.ack_with_response())

    def verify():
        assert all(outcome.result(TIMEOUT) == AcknowledgeStatus.SUCCESS for outcome in outcomes)

    listen(subscription, handle, lambda: len(outcomes) == 20, at_end=verify)
    assert pull_nothing(subscription)


def check_exactly_once_invalid_ack():
    topic = new_topic()
    subscription = new_subscription(topic, enable_exactly_once_delivery=True)
    publisher.publish(topic, b"twice").result(TIMEOUT)
    # By attempt: the second delivery may be handled before the first one's handler has ended.
    outcomes = {}
    attempts = []

    def handle(message):
        attempts.append(message.message_id)
        if len(attempts) > 1:
            outcomes["second"] = message.ack_with_response()
            return
        # The lease is given up behind the message's back, so its acknowledgement comes too late.
        subscriber.modify_ack_deadline(subscription=subscription, ack_ids=[message.ack_id], ack_deadline_seconds=0)
        outcomes["first"] = message.ack_with_response()

    def verify():
        try:
            outcomes["first"].result(TIMEOUT)
            raise AssertionError("an acknowledgement without a lease succeeded")
        except AcknowledgeError as error:
            assert error.error_code == AcknowledgeStatus.INVALID_ACK_ID, error
        assert outcomes["second"].result(TIMEOUT) == AcknowledgeStatus.SUCCESS

    listen(subscription, handle, lambda: len(outcomes) == 2, at_end=verify)


def check_dead_lettering():
    dead_letter_topic = new_topic()
    morgue = new_subscription(dead_letter_topic)
    topic = new_topic()
    policy = {"dead_letter_topic": dead_letter_topic, "max_delivery_attempts": 5}
    subscription = new_subscription(topic, dead_letter_policy=policy)
    publisher.publish(topic, b"poison", own="kept").result(TIMEOUT)
    attempts = []

    def handle(message):
        attempts.append(message.delivery_attempt)
        message.nack()

    listen(subscription, handle, lambda: len(attempts) == 5)
    (dead,) = pull(morgue, 1)
    assert attempts == [1, 2, 3, 4, 5], attempts
    assert dead.message.data == b"poison"
    assert dead.message.attributes["own"] == "kept"
    assert dead.message.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"


def check_seek_to_time():
    topic = new_topic()
    subscription = new_subscription(topic, retain_acked_messages=True)
    start = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=1)
    for n in range(5):
        publisher.publish(topic, str(n).encode()).result(TIMEOUT)
    received = pull(subscription, 5)
    subscriber.acknowledge(subscription=subscription, ack_ids=[one.ack_id for one in received])
    assert pull_nothing(subscription)
    subscriber.seek(request={"subscription": subscription, "time": start})
    assert [one.message.data for one in pull(subscription, 5)] == [one.message.data for one in received]


def check_snapshots():
    topic = new_topic()
    subscription = new_subscription(topic)
    for text in [b"acked", b"open"]:
        publisher.publish(topic, text).result(TIMEOUT)
    first, second = pull(subscription, 2)
    subscriber.acknowledge(subscription=subscription, ack_ids=[first.ack_id])
    snapshot = subscriber.snapshot_path(PROJECT, f"snap-{uuid.uuid4().hex}")
    subscriber.create_snapshot(name=snapshot, subscription=subscription)
    publisher.publish(topic, b"since").result(TIMEOUT)
    (third,) = pull(subscription, 1)
    subscriber.acknowledge(subscription=subscription, ack_ids=[second.ack_id, third.ack_id])
    assert pull_nothing(subscription)
    subscriber.seek(request={"subscription": subscription, "snapshot": snapshot})
    assert [one.message.data for one in pull(subscription, 2)] == [b"open", b"since"]
    subscriber.delete_snapshot(snapshot=snapshot)


def main():
    failed = 0
    for name, check in sorted(globals().items()):
        if not name.startswith("check_"):
            continue
        try:
            check()
            print(f"ok {name.removeprefix('check_')}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED {name.removeprefix('check_')}", flush=True)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
