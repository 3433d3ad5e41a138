/**
 * Settles an item that must not be tried: its version is too far ahead to be believed, or it kept ending the process.
 *
 *   it becomes a dead letter; or, with `onPoison: 'stop'`,
 *     too far ahead            comes again and again until an operator acts
 *     ends the process         rests, twice as long with every process that it ends; after its rest it has another try
 *
 * A letter that is redriven was given up before: it stays a letter.
 */
import { rows } from '../../postgres/query/database.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import { readRest } from '../tables/dead-letter.sql.ts'
import { lineOf, type UnreadItem } from '../model/batch-item.ts'
import { throughOutages, type StepDeps } from './retry-outages.ts'
import type { Burial, Undertaker } from './settle.ts'

export interface UntriedDeps extends StepDeps {
  readonly settings: ConsumerSettings
  readonly undertaker: Undertaker
}

export interface Untried {
  readonly item: UnreadItem
  readonly isJump: boolean
  /** How many processes ended while they handled it. */
  readonly crashes: number
  /** Gets its line if it comes again: all of the batch that is behind it comes after it. */
  readonly failed: Set<string>
}

/** The longest rest of an event that keeps ending the process and is not given up. */
const longestRestMs = 3_600_000

/** Returns false if the item is to be tried. */
export async function settleUntried(deps: UntriedDeps, untried: Untried): Promise<boolean> {
  const { settings, undertaker } = deps
  const { item, isJump, failed } = untried
  const burial = burialOf(settings, untried)
  if (burial === undefined) return false
  if (settings.onPoison !== 'stop' || item.origin.kind === 'dead') {
    await throughOutages(deps, 1, () => undertaker.bury(item, burial))
    return true
  }
  const { maxMs } = settings.backoff
  const restMs = isJump ? maxMs : await restOf(deps, untried)
  if (!isJump && restMs <= 0) return false
  failed.add(lineOf(item))
  await throughOutages(deps, 1, () => undertaker.giveBack(item, { delayMs: Math.min(restMs, maxMs), error: burial.error }))
  undertaker.reportStopped(item, burial)
  return true
}

function burialOf({ maxCrashes, maxVersionJump }: ConsumerSettings, { item, isJump, crashes }: Untried): Burial | undefined {
  if (isJump) {
    const error = `Version ${item.event.version} is more than ${maxVersionJump} ahead of what was seen of its aggregate.`
    return { reason: 'version_jump', error, attempts: 1 }
  }
  if (crashes < maxCrashes) return undefined
  return { reason: 'crashed', error: `The process ended ${crashes} times while it handled this event.`, attempts: crashes }
}

/** What is left of the rest of an item that ends processes. */
async function restOf(deps: UntriedDeps, { item, crashes }: Untried): Promise<number> {
  const { db, backoff, maxCrashes } = deps.settings
  const [last] = await throughOutages(deps, 1, () => rows(db, readRest(deps.scope, item.event.id)))
  const wholeMs = Math.min(Math.max(backoff.maxMs, longestRestMs), backoff.maxMs * 2 ** (crashes - maxCrashes))
  return wholeMs - (last?.ms ?? wholeMs)
}
