/**
 * `waybill repair-gap | replay`: brings a consumer what it misses, from the owner's outbox or from the broker.
 */
import type { Consumer } from '../../consumer/consumer.ts'
import { assertReplay, replayConsumer, type ReplayOptions } from '../../consumer/operate/replay.ts'
import { WaybillError } from '../../core/errors.ts'
import { createSignals } from '../../core/signals.ts'
import { closedAfter, withDatabase } from '../../ops/connect/with-database.ts'
import { parseFrom, showFrom } from '../../ops/rebuild/source.ts'
import { listGaps, repairGap, type Gap, type RepairedGap } from '../../ops/repair/repair-gap.ts'
import type { Queryable } from '../../postgres/query/database.ts'
import type { SeekTarget } from '../../transport/port/transport.ts'
import { exitCodes, type Command, type CommandContext, type CommandResult } from '../frame/command.ts'
import { durationOption, textOption } from '../frame/option-values.ts'
import { databaseOptions } from '../frame/settings.ts'
import { textDuration, textTable } from '../frame/text-table.ts'
import { withSchema } from '../frame/open-schema.ts'

export const repairGapCommand: Command = {
  summary: 'Bring deltas that a consumer waits for in vain from the outbox of their owner',
  details: [
    'An aggregate has a gap if later versions of it wait and the next one does not come. What the owner no longer keeps stays',
    'missing: a state event of that aggregate (waybill backfill) stands for everything before it.',
  ],
  argument: 'consumer',
  options: {
    ...databaseOptions,
    list: { type: 'boolean', help: 'only show the gaps' },
    'older-than': { type: 'string', value: '<duration>', help: 'only gaps that have been there for so long [1m]' },
    'owner-url': { type: 'string', value: '<url>', help: "the owner's database [the consumer's own]" },
    'owner-schema': { type: 'string', value: '<name>', help: "the owner's schema [the same]" },
  },
  async run({ values, settings, user: actor }) {
    const consumer = namedConsumer(values['consumer'])
    const olderThanMs = durationOption(values, 'older-than')
    return await withSchema(settings, async (db, schema) => {
      const gaps = { db, schema, consumer, olderThanMs }
      if (values['list'] === true) return listed(consumer, await listGaps(gaps))
      const ownerSchema = textOption(values, 'owner-schema') ?? schema
      const repair = async (owner: Queryable): Promise<CommandResult> =>
        repaired(consumer, await repairGap({ ...gaps, owner: { db: owner, schema: ownerSchema }, actor }))
      const ownerUrl = textOption(values, 'owner-url')
      return await (ownerUrl === undefined ? repair(db) : withDatabase(ownerUrl, repair))
    })
  },
}

export const replayCommand: Command = {
  summary: "Let the broker deliver a consumer's messages again",
  details: [
    'The inbox recognises what was applied before. A replay that reaches beyond its memory is refused, because handlers would',
    'be called again; --beyond-memory is for consumers whose only effects are project(…) and insert(…).',
    'What is older and was not applied yet still comes. Google Pub/Sub cannot tell what that is: there, replay from earliest, or',
    'let the consumer drain first and pass --skip-older, which asks for --yes. A time in the future, by the clock of the',
    'database, is refused.',
  ],
  argument: 'consumer',
  options: {
    ...databaseOptions,
    from: { type: 'string', value: '<where>', help: 'earliest, or a time such as 2026-05-01T00:00:00Z' },
    'beyond-memory': { type: 'boolean', help: 'also what the inbox has forgotten' },
    'skip-older': { type: 'boolean', help: 'what is older and was not applied yet never comes' },
    yes: { type: 'boolean', help: 'with --skip-older: do it; without this it is only explained' },
  },
  async run({ values, settings, user: actor, note }) {
    const { service } = settings.names()
    const configured = settings.consume()
    const to = targetOf(textOption(values, 'from'))
    return await withSchema(settings, async (db, schema) => {
      const transport = await configured.transport({ db, schema })
      return await closedAfter(transport, async () => {
        const made = await configured.consumers({ db, schema, service, transport, signals: createSignals() })
        const consumer = chosenConsumer(made, namedConsumer(values['consumer']))
        const { name } = consumer.settings
        const { topics } = consumer.routes()
        const beyondMemory = values['beyond-memory'] === true
        const skipOlder = values['skip-older'] === true
        const replay = { db, schema, transport, consumer: name, topics, to, beyondMemory, skipOlder, actor }
        if (skipOlder && to !== 'earliest' && values['yes'] !== true) return await explainSkipping(replay, note)
        await replayConsumer(replay)
        return {
          text: `${name} gets ${topics.join(', ')} again from ${showFrom(to)}.`,
          data: { consumer: name, topics, from: to },
        }
      })
    })
  },
}

/** What a seek passes over counts as settled at the broker. It says which that is; nothing is changed. */
async function explainSkipping(replay: ReplayOptions, note: CommandContext['note']): Promise<CommandResult> {
  await assertReplay(replay)
  const { consumer, topics, to } = replay
  note('Nothing was changed. If the consumer has drained, nothing is lost. To replay, run the same with --yes.')
  return {
    text: `would skip what of ${topics.join(', ')} is older than ${showFrom(to)} and ${consumer} has not applied: it never comes.`,
    data: { wouldSkip: { consumer, topics, olderThan: to } },
    exitCode: exitCodes.refused,
  }
}

/** The configured consumer of this name. */
export function chosenConsumer(made: readonly Consumer[], name: string): Consumer {
  const found = made.find((each) => each.settings.name === name)
  if (found !== undefined) return found
  const known = made.map((each) => each.settings.name).join(', ')
  throw new WaybillError('UNKNOWN_NAME', `waybill.config.ts has no consumer "${name}"; it has ${known}.`)
}

function targetOf(from: string | undefined): SeekTarget {
  const to = from === undefined ? 'outbox' : parseFrom(from)
  if (to === 'earliest' || (typeof to === 'object' && 'sinceMs' in to)) return to
  throw new WaybillError('INVALID_OPTION', 'From when? Pass --from earliest, or a time such as 2026-05-01T00:00:00Z.')
}

/** The consumer that the command line names. */
export function namedConsumer(consumer: CommandContext['values'][string]): string {
  if (typeof consumer === 'string') return consumer
  throw new WaybillError('INVALID_OPTION', 'Which consumer? Name it behind the command.')
}

function listed(consumer: string, gaps: readonly Gap[]): CommandResult {
  return { text: gaps.length === 0 ? `${consumer} has no gaps.` : gapTable(gaps), data: { gaps } }
}

function repaired(consumer: string, gaps: readonly RepairedGap[]): CommandResult {
  const missing = gaps.reduce((sum, gap) => sum + gap.missing, 0)
  const brought = gaps.reduce((sum, gap) => sum + gap.brought, 0)
  if (gaps.length === 0) return { text: `${consumer} has no gaps.`, data: { gaps } }
  const lines = [gapTable(gaps), `Brought ${brought} events to ${consumer}.`]
  if (missing > 0) lines.push(`${missing} versions are not in the outbox any more.`)
  return { text: lines.join('\n'), data: { gaps }, ...(missing > 0 ? { exitCode: exitCodes.checkFailed } : {}) }
}

function gapTable(gaps: readonly (Gap & Partial<RepairedGap>)[]): string {
  return textTable(
    ['stream', 'aggregate', 'applied', 'waits', 'messages', 'age', 'brought', 'missing'],
    gaps.map((gap) => [
      gap.aggregateType,
      gap.aggregateId,
      gap.position,
      gap.next,
      gap.waiting,
      textDuration(gap.ageMs),
      gap.brought,
      gap.missing,
    ]),
  )
}
