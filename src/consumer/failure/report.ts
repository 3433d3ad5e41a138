/** The signals about single events: failed, dead, stopped, waiting, put aside, or not believed. */
import type { Signals } from '../../core/signals.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { UnreadItem } from '../model/batch-item.ts'
import type { Scope } from '../tables/inbox.sql.ts'

export interface ReportDeps {
  readonly settings: Pick<ConsumerSettings, 'signals'>
  readonly scope: Pick<Scope, 'consumer'>
}

export type Dead = Omit<Signals['consumer.dead'], 'consumer'>

type Failed = Pick<Signals['consumer.failed'], 'attempts' | 'delayMs' | 'error'>
type Told = Pick<UnreadItem, 'event'>
type Described = Omit<Signals['consumer.stopped'], 'consumer' | 'attempts' | 'error'>

export function reportDead({ settings, scope }: ReportDeps, dead: Dead): void {
  settings.signals.emit('consumer.dead', { consumer: scope.consumer, ...dead })
}

export function reportFailed({ settings, scope }: ReportDeps, item: UnreadItem, { attempts, delayMs, error }: Failed): void {
  settings.signals.emit('consumer.failed', { ...describe(item), consumer: scope.consumer, attempts, delayMs, error })
}

/** An item is not given up, although it cannot be applied. */
export function reportStopped(
  { settings, scope }: ReportDeps,
  item: UnreadItem,
  { attempts, error }: Omit<Failed, 'delayMs'>,
): void {
  settings.signals.emit('consumer.stopped', { ...describe(item), consumer: scope.consumer, attempts, error })
}

export function reportForks(deps: ReportDeps, forks: readonly Told[]): void {
  for (const fork of forks) deps.settings.signals.emit('consumer.forked', withVersion(deps, fork))
}

export function reportPutAside(deps: ReportDeps, items: readonly Told[]): void {
  for (const item of items) deps.settings.signals.emit('consumer.put-aside', withVersion(deps, item))
}

export function reportJumps(deps: ReportDeps, jumps: readonly { readonly item: Told; readonly from: bigint }[]): void {
  for (const { item, from } of jumps)
    deps.settings.signals.emit('consumer.version-jumped', { ...withVersion(deps, item), from: from.toString() })
}

export function reportWaiting({ settings, scope }: ReportDeps, waiting: readonly Told[]): void {
  for (const { event } of waiting) {
    const { id: eventId, aggregateType, aggregateId, version } = event
    const told = { consumer: scope.consumer, eventId, aggregateType, aggregateId, version: version.toString() }
    settings.signals.emit('consumer.waiting', told)
  }
}

/** Events whose id was recorded before with other content. */
export function reportConflicts({ settings, scope }: ReportDeps, conflicts: readonly Told[]): void {
  for (const { event } of conflicts)
    settings.signals.emit(event.contentHash === undefined ? 'consumer.id-reused' : 'consumer.fact-conflict', {
      consumer: scope.consumer,
      ...named(event),
    })
}

export function describe({ event, message }: UnreadItem): Described {
  const { messageId, orderingKey } = message
  return { ...named(event), messageId, orderingKey }
}

function named({
  id: eventId,
  type: eventType,
  aggregateType,
  aggregateId,
}: Told['event']): Omit<Signals['consumer.id-reused'], 'consumer'> {
  return { eventId, eventType, aggregateType, aggregateId }
}

function withVersion({ scope }: ReportDeps, { event }: Told): Signals['consumer.forked'] {
  return { consumer: scope.consumer, ...named(event), version: event.version.toString() }
}
