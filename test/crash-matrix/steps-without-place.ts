/**
 * Steps of the roles at which no process is crashed, each with its reason. A step that is neither here nor in the registry of
 * places fails a test.
 */
import type { CommandCache } from '../../src/command/cache/cache.ts'
import type { KafkaClient } from '../../src/transport/kafka/client/kafka-client.ts'
import type { Delivery, Publisher } from '../../src/transport/port/transport.ts'

/** Statements by their reasons. */
export const statementsWithoutPlace: Readonly<Record<string, readonly string[]>> = {
  'only looks: nothing is different after it, and the next step has a place': [
    'command/model/command.selectMarker',
    'command/model/command.selectVersions',
    'consumer/tables/claim.findBlocked',
    'consumer/tables/dead-letter.countDead',
    'consumer/tables/dead-letter.readAttempts',
    'consumer/tables/dead-letter.readRedriving',
    'consumer/tables/dead-letter.readRest',
    'consumer/tables/dead-letter.selectNextHolders',
    'consumer/tables/handler-settings.keepSettings',
    'consumer/tables/inbox.countWaiting',
    'consumer/tables/inbox.readConsumer',
    'consumer/tables/inbox.readReleased',
    'consumer/tables/inbox.readVersions',
    'consumer/tables/inbox.readWaiting',
    'consumer/tables/retention.selectForgotten',
    'consumer/tables/retention.selectMemory',
    'consumer/tables/offsets.readOffsets',
    'consumer/tables/refused.countRefused',
    'consumer/tables/refused.selectRefused',
    'consumer/tables/readers.selectOtherReads',
    'consumer/tables/readers.selectSeen',
    'outbox/tables/backlog.readBacklog',
    'outbox/tables/backlog.readRemaining',
    'outbox/tables/dispatch.readBodies',
    'outbox/tables/dispatch.readPauses',
    'postgres/lanes/lanes.awaitFirstLane',
    'postgres/lanes/lanes.findUnlockedLanes',
    'postgres/schema/migrate.inspectSchema',
    'postgres/schema/migrate.probeSession',
    'postgres/schema/migrate.selectApplied',
    'postgres/schema/migrate.selectDeployment',
    'projection/reads.readPositions',
    'projection/reads.readRegister',
    'projection/reads.readRow',
    'projection/reads.readVersions',
    'projection/versioned-upsert.findColumns',
    'projection/versioned-upsert.findUniqueKeys',
  ],
  'at every start, one statement that leaves what is there as it is': [
    'consumer/tables/inbox.registerConsumer',
    'consumer/tables/stored.makeLanes',
  ],
  'the register of running instances: what a process that died left there runs out by itself': [
    'consumer/tables/readers.beat',
    'consumer/tables/readers.leave',
  ],
  'in the transaction that puts a message aside for another version: whatever ends it there brings the message again': [
    'consumer/tables/readers.lockPositions',
    'consumer/tables/readers.markUnknown',
  ],
  'once for a row of the version before, and what is read is the same before and after it': [
    'consumer/tables/offsets.identifyOffsets',
  ],
  'an operator moves a deployment': ['postgres/schema/migrate.insertAudit', 'postgres/schema/migrate.restampDeployment'],
  'in the transaction of "inbox claimed", "effect written" and "committing": whatever ends it there ends it here': [
    'consumer/tables/retention.archiveReceived',
    'consumer/tables/retention.archiveWaiting',
    'consumer/tables/claim.claimStored',
    'consumer/tables/claim.claimLetters',
    'consumer/tables/claim.lockBlocked',
    'consumer/tables/claim.markConflicts',
    'consumer/tables/claim.unrecord',
    'consumer/tables/dead-letter.forgetAttempts',
    'consumer/tables/dead-letter.transferHolds',
    'consumer/tables/dead-letter.lockRedriving',
    'consumer/tables/dead-letter.settleApplied',
    'consumer/tables/handler-settings.putBackRole',
    'consumer/tables/handler-settings.putBackSettings',
    'consumer/tables/inbox.movePositions',
    'consumer/tables/stored.setAside',
  ],
  'stands where "inbox claimed" does, in consumers without handlers or without an inbox': [
    'consumer/tables/claim.claimEvents',
    'consumer/tables/claim.claimRows',
    'consumer/tables/claim.moveOnly',
    'consumer/tables/claim.moveRows',
    'consumer/tables/offsets.beginOffsets',
    'consumer/tables/offsets.moveOffsets',
  ],
  'stands where "projection written" does, in fact tables': ['projection/versioned-upsert.insertRows'],
  'stands where "event added" does, for one event, and for facts': [
    'outbox/tables/outbox.addEvent',
    'outbox/tables/outbox.addFacts',
  ],
  'in the transaction of "marker claimed" and "state written", or in one that only looks: locks end with it': [
    'command/model/command.lockAggregates',
  ],
  'in the transaction of "letter written", "aggregate held" and "burial commit sent": whatever ends it there ends it here': [
    'consumer/tables/dead-letter.forgetSeen',
    'consumer/tables/dead-letter.lockLetter',
    'consumer/tables/dead-letter.recordSeen',
    'consumer/tables/offsets.holdOffset',
  ],
  'stands where "aggregate held" does, for events that are discarded or passed over': [
    'consumer/tables/dead-letter.moveOverEvent',
    'consumer/tables/dead-letter.moveOverGap',
  ],
  'only says when the next attempt is, and "attempt charged" stands before it: without it there is one at once': [
    'consumer/tables/dead-letter.restLetter',
    'consumer/tables/inbox.restStored',
    'consumer/tables/stored.lockLane',
    'consumer/tables/stored.restReceived',
  ],
  'only takes a mark away: one that stays counts as one death of a process, as after a crash at "attempts started"': [
    'consumer/tables/dead-letter.releaseAttempts',
  ],
  'in one transaction that ends a redrive which failed: without it the letter is tried once more, and what is behind it after it':
    ['consumer/tables/dead-letter.markFailed', 'consumer/tables/dead-letter.markFollowersFailed'],
  'a lease or a sign of life, which ends by itself: SIGKILL and SIGSTOP at every other place rely on that': [
    'consumer/tables/leased-work.leasedLetters',
    'consumer/tables/leased-work.leasedWaiting',
    'consumer/tables/stored.renewLanes',
    'postgres/lanes/lanes.farewell',
    'postgres/lanes/lanes.heartbeat',
    'postgres/lanes/lanes.releaseLanes',
  ],
  'a sample for people: what is not kept is missing there and nowhere else': ['consumer/tables/refused.keepRefused'],
  'a hint: without it the same happens a little later': [
    'consumer/tables/leased-work.clampLetterRetries',
    'consumer/tables/leased-work.clampMessageRetries',
    'outbox/tables/dispatch.pullBackRetries',
    'outbox/tables/dispatch.wakeTopics',
    'outbox/tables/outbox.notifyChannel',
    'projection/reads.countVersions',
    'projection/reads.markComplete',
  ],
}

/** A call that has a place. */
export const placed = 'placed'

type Calls<Port, Fields extends keyof Port = never> = Readonly<Record<Exclude<keyof Port, Fields>, string>>

/** Every call of the ports that places stand around: `placed`, or why it is not. */
export const portCalls: {
  readonly kafka: Calls<KafkaClient>
  readonly cache: Calls<CommandCache>
  readonly delivery: Calls<Delivery, 'message' | 'lost' | 'acker'>
  readonly publisher: Calls<Publisher, 'maxBytes'>
} = {
  kafka: {
    initProducer: placed,
    produce: placed,
    joinGroup: placed,
    syncGroup: placed,
    committedOffsets: placed,
    fetch: placed,
    heartbeat: placed,
    commitOffsets: placed,
    leaveGroup: placed,
    addresses: 'nothing is asked of the broker',
    describeTopic: 'only looks',
    topicSettings: 'only looks',
    listOffsets: 'only looks, where a group has no offsets yet; "offsets read" stands before it',
    createTopic: 'an operator makes topics',
    close: 'nothing is asked of the broker any more',
  },
  cache: {
    isPrivate: 'nothing is asked of the cache',
    claim: placed,
    complete: placed,
    release: 'nothing was committed; what is not released expires, as after a crash at "cache claimed"',
  },
  delivery: {
    ack: placed,
    nack: 'the message comes again, as it does if the process ends',
    stall: 'only this process remembers it, and nothing is asked of the broker',
  },
  publisher: { publish: placed },
}

/** Failpoints in the sources that are no places, by their reasons. */
export const strangeFailpoints: Readonly<Record<string, readonly string[]>> = {
  'drills arm them, in processes of their own': ['before publish', 'after publish', 'in handler'],
}
