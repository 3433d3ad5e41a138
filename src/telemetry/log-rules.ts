/**
 * How loud each signal is, and in which words. `undefined` as the level means that it is for metrics alone.
 */
import type { SignalName, Signals } from '../core/signals.ts'

export type LogLevel = 'debug' | 'info' | 'warn' | 'error'

export interface LogRule<Name extends SignalName> {
  readonly level: LogLevel | undefined | ((event: Signals[Name]) => LogLevel | undefined)
  readonly message: string
  /** What makes two of them the same, beside the signal's name. @default nothing: they are all the same */
  readonly kind?: (event: Signals[Name]) => string
}

const byConsumer = ({ consumer }: { readonly consumer: string }): string => consumer
const byCommand = ({ command }: { readonly command: string }): string => command
const byService = ({ service }: { readonly service: string }): string => service
const byState = ({ state }: { readonly state: string }): string => state
const breakerLevel = ({ state }: { readonly state: string }): LogLevel => (state === 'closed' ? 'info' : 'warn')
const silent = (message: string): { readonly level: undefined; readonly message: string } => ({ level: undefined, message })

const coreRules = {
  'transaction.retried': { level: 'debug', message: 'A transaction is run again.' },
  'transaction.unknown': { level: 'warn', message: 'The connection broke during COMMIT.' },
  'transaction.hook-failed': { level: 'error', message: 'What was to happen after a commit threw; the commit stands.' },
  'transaction.used-after-end': {
    level: ({ rolledBack }) => (rolledBack ? 'debug' : 'warn'),
    message: 'Work that came after the end of its transaction was refused; an await may be missing.',
    kind: ({ what }) => what,
  },
  'database.idle-connection-lost': { level: 'info', message: 'An idle connection broke.' },
  'service.started': { level: 'info', message: 'A service was started.', kind: byService },
  'service.stopped': {
    level: ({ error }) => (error === undefined ? 'info' : 'error'),
    message: 'A service has ended.',
    kind: byService,
  },
  'service.failed': { level: 'warn', message: 'A pass failed and is tried again.', kind: byService },
  'signals.failed': { level: 'error', message: 'A subscriber of signals threw.', kind: ({ signal }) => signal },
  'listen.ready': { level: 'debug', message: 'A LISTEN connection works.' },
  'listen.failed': { level: 'warn', message: 'A LISTEN connection failed; polling goes on.' },
  'lanes.acquired': { level: 'debug', message: 'Lanes were taken.' },
  'lanes.released': { level: 'debug', message: 'Lanes were given back.' },
  'lanes.lost': { level: 'warn', message: 'Lanes were another’s when their relay looked.' },
} satisfies Partial<LogRules>

const outboxRules = {
  'relay.published': { level: 'debug', message: 'Events were published.' },
  'relay.stopped': { level: 'warn', message: 'An event failed and stops its key until it is tried again.' },
  'relay.parked': { level: 'error', message: 'An event gave up and waits for an operator.' },
  'relay.event-missing': { level: 'error', message: 'An event was deleted before it was published.' },
  'relay.breaker': {
    level: breakerLevel,
    message: 'The broker went out of reach, is probed, or is back; or its relay ended.',
    kind: byState,
  },
  'relay.backlog': { level: 'debug', message: 'The backlog was counted.' },
  'outbox.retained': { level: 'debug', message: 'Retention removed rows.' },
  'outbox.notify-failed': { level: 'warn', message: 'A commit could not be announced; polling finds its events.' },
  'backfill.progress': { level: 'debug', message: 'A backfill committed a batch.' },
  'backfill.waiting': { level: 'debug', message: 'A backfill holds back.' },
  'backfill.finished': { level: 'info', message: 'A backfill is complete.' },
  'blobs.expired': { level: 'debug', message: 'Payloads of a claim check were removed.' },
} satisfies Partial<LogRules>

const consumerRules = {
  'consumer.applied': { level: 'debug', message: 'A batch was applied.', kind: byConsumer },
  'consumer.handled': silent('A handler was called.'),
  'consumer.in-flight': silent('What is in hand was counted.'),
  'consumer.processed': { level: 'debug', message: 'Stored messages were worked through.', kind: byConsumer },
  'consumer.ack-unconfirmed': {
    level: 'info',
    message: 'Acknowledgements were not confirmed; repeats will be recognised.',
    kind: byConsumer,
  },
  'consumer.ignored': { level: 'info', message: 'A topic carries a stream that this consumer does not read.', kind: byConsumer },
  'consumer.refused': {
    level: 'error',
    message: 'A message was refused: it is unsigned, forged, or signed by an unknown key.',
    kind: ({ consumer, reason }) => `${consumer} ${reason}`,
  },
  'consumer.unsigned': silent('An unsigned message was let in.'),
  'consumer.id-reused': {
    level: 'error',
    message: 'An event came under the id of another one, with other content; the first one stays.',
    kind: byConsumer,
  },
  'consumer.version-jumped': {
    level: 'error',
    message: 'The version of an event is too far ahead of its aggregate: forged, or from a broken writer.',
    kind: byConsumer,
  },
  'consumer.fact-conflict': {
    level: 'warn',
    message: 'A fact came under the business key of another one, with other content; the first one stays.',
    kind: byConsumer,
  },
  'consumer.put-aside': {
    level: 'info',
    message: 'An event that only another running version of this consumer knows is stored for that one.',
    kind: byConsumer,
  },
  'consumer.waiting': { level: 'debug', message: 'An event came before its turn and is stored.', kind: byConsumer },
  'consumer.forked': {
    level: 'error',
    message: 'Two events have one version of an aggregate: its owner lost commits, or was restored.',
    kind: byConsumer,
  },
  'consumer.backlog': {
    level: ({ alert }) => (alert ? 'error' : 'debug'),
    message: 'Messages wait for their turn.',
    kind: byConsumer,
  },
  'consumer.failed': { level: 'warn', message: 'An event failed and is tried again.', kind: byConsumer },
  'consumer.dead': {
    level: 'error',
    message: 'An event was given up: a dead letter.',
    kind: ({ consumer, reason }) => `${consumer} ${reason}`,
  },
  'consumer.stopped': { level: 'error', message: 'An event used up its attempts; its key stands still.', kind: byConsumer },
  'consumer.retried': { level: 'warn', message: 'A batch met an outage or a lock and is tried again.', kind: byConsumer },
  'consumer.disturbed': { level: 'warn', message: 'Receiving is disturbed; the transport goes on trying.', kind: byConsumer },
  'consumer.paused': {
    level: 'info',
    message: 'An operator paused or resumed a consumer.',
    kind: ({ consumer, paused }) => `${consumer} ${paused}`,
  },
  'transport.lag': silent('What a consumer has not settled was counted.'),
  'inbox.retained': { level: 'debug', message: 'Retention removed rows.' },
  'retention.clock-leapt': {
    level: 'warn',
    message: 'The clock of the database has leapt, or no clean-up ran: rows are kept for longer by as much.',
  },
  'inbox.memory-short': { level: 'error', message: 'The inbox forgets before the broker does: repeats could be applied twice.' },
} satisfies Partial<LogRules>

const ingestRules = {
  'ingest.accepted': { level: 'debug', message: 'Facts were accepted.' },
  'ingest.refused': { level: 'warn', message: 'A fact was not accepted.', kind: ({ event, code }) => `${event} ${code}` },
  'ingest.breaker': {
    level: breakerLevel,
    message: 'The broker of an ingest went out of reach, is probed, or is back.',
    kind: ({ event, state }) => `${event} ${state}`,
  },
} satisfies Partial<LogRules>

const commandRules = {
  'command.executed': { level: 'debug', message: 'A command took effect.', kind: byCommand },
  'command.replayed': { level: 'debug', message: 'A repeat was answered.', kind: byCommand },
  'command.rejected': { level: 'debug', message: 'A command was refused by its own rules.', kind: byCommand },
  'command.failed': {
    level: ({ code }) => (code === 'UNAVAILABLE' ? 'warn' : 'debug'),
    message: 'A command ended without effect.',
    kind: ({ command, code }) => `${command} ${code}`,
  },
  'command.threw': { level: 'error', message: 'A call of a command threw; it committed nothing.', kind: byCommand },
  'command.retried': { level: 'debug', message: 'An attempt lost a race and is made again.', kind: byCommand },
  'command.queued': silent('A command waits in line.'),
  'command.admitted': { level: 'debug', message: 'A command got its place after a wait in line.', kind: byCommand },
  'command.refused': {
    level: ({ reason }) => (reason === 'aborted' ? 'debug' : 'warn'),
    message: 'A command got no place: too many of its aggregate or its principal are under way.',
    kind: ({ command, at }) => `${command} ${at}`,
  },
  'command.response-dropped': {
    level: 'warn',
    message: 'A response, or a rejection with its details, is too large to be kept for repeats.',
    kind: byCommand,
  },
  'command.request-id-missing': { level: 'info', message: 'A command came without a request id.', kind: byCommand },
  'command.required-too-early': { level: 'warn', message: 'Request ids were made mandatory too early.', kind: byCommand },
  'command.cache-failed': { level: 'debug', message: 'The cache failed; the command went on without it.' },
  'command.cache-unsealed': {
    level: 'warn',
    message: 'Entries of the command cache are believed without proof: set cacheSecret.',
  },
  'command.cache-breaker': { level: breakerLevel, message: 'The cache is left out, being tried, or back.', kind: byState },
  'command.cleaned': { level: 'debug', message: 'A clean-up pass is done.' },
  'command.cleanup-lagging': { level: 'error', message: 'Clean-up of markers does not keep up.' },
} satisfies Partial<LogRules>

export type LogRules = { readonly [Name in SignalName]: LogRule<Name> }

export const logRules: LogRules = { ...coreRules, ...outboxRules, ...consumerRules, ...ingestRules, ...commandRules }
