"""`drawbridge explain`: builds and prints the story of an object.

A story explains the state of a pod, a workload, a claim or a device, from a cluster or a dump.
"""

from analysis.explain.claim_story import describe_requests
from analysis.explain.devices import device_story
from analysis.explain.lone_claims import lone_claim_story
from analysis.explain.pod_story import pod_story, with_cause
from analysis.explain.screen import report, screen_of_claim, screen_of_device, screen_of_pod
from analysis.explain.stories import (
    DeviceStory,
    LoneClaimStory,
    OfClaim,
    OfDevice,
    OfPod,
    OfWorkload,
    PodStory,
    Step,
    WorkloadStory,
)
from analysis.explain.subject import CODE, WORDS, Subject, story_of, subject_of
from analysis.explain.webhook_record import as_written
from analysis.explain.why import (
    FAILED_OF_PODS,
    RULES,
    Facts,
    PodRule,
    facts_of,
    first_reasons,
    half_placed_group,
    scheduler_actor,
)
from analysis.explain.workload_story import find_workload, kinds_of

__all__ = [
    "CODE",
    "FAILED_OF_PODS",
    "RULES",
    "WORDS",
    "DeviceStory",
    "Facts",
    "LoneClaimStory",
    "OfClaim",
    "OfDevice",
    "OfPod",
    "OfWorkload",
    "PodRule",
    "PodStory",
    "Step",
    "Subject",
    "WorkloadStory",
    "as_written",
    "describe_requests",
    "device_story",
    "facts_of",
    "find_workload",
    "first_reasons",
    "half_placed_group",
    "kinds_of",
    "lone_claim_story",
    "pod_story",
    "report",
    "scheduler_actor",
    "screen_of_claim",
    "screen_of_device",
    "screen_of_pod",
    "story_of",
    "subject_of",
    "with_cause",
]
