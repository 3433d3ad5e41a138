/**
 * `waybill rebuild <consumer>`: a consumer's projections built anew beside live traffic, with the progress on stderr. What it
 * has done is kept: stopped or killed, the same command goes on with it.
 */
import type { Consumer } from '../../consumer/consumer.ts'
import { createSignals } from '../../core/signals.ts'
import { closedAfter, withDatabase } from '../../ops/connect/with-database.ts'
import { parseFrom, showFrom } from '../../ops/rebuild/source.ts'
import { abandonRebuild, dropReplaced, rebuild, rebuildLeftovers, type RebuildReport } from '../../ops/rebuild/rebuild.ts'
import { mostCounted } from '../../ops/rebuild/missing.ts'
import type { RebuildProgress } from '../../ops/rebuild/run.ts'
import type { Database } from '../../postgres/query/database.ts'
import type { Transport } from '../../transport/port/transport.ts'
import { exitCodes, type Command, type CommandContext, type CommandResult } from '../frame/command.ts'
import { chosenConsumer, namedConsumer } from './consumer-repair.ts'
import { durationOption, textOption } from '../frame/option-values.ts'
import { databaseOptions } from '../frame/settings.ts'
import { textDuration } from '../frame/text-table.ts'
import { withSchema } from '../frame/open-schema.ts'

/** Batches, the feed, the progress and the swap. */
const connections = 8
const tellEveryMs = 2_000

export const rebuildCommand: Command = {
  summary: "Build a consumer's projections anew beside live traffic, and swap them in",
  details: [
    'Without --swap the new tables are built and left beside the live ones; the same command goes on with them. With',
    '--compare and --swap they are swapped only if no row is missing, older or different. Handlers are not called, and',
    'nothing is emitted. Connect as a role that owns the schema and the tables.',
  ],
  argument: 'consumer',
  options: {
    ...databaseOptions,
    from: {
      type: 'string',
      value: '<where>',
      help: 'earliest, a time or snapshot:<name>: from the broker; outbox: from the retained events',
    },
    'owner-url': { type: 'string', value: '<url>', help: "with --from outbox: the owner's database [the consumer's own]" },
    'owner-schema': { type: 'string', value: '<name>', help: "with --from outbox: the owner's schema [the same]" },
    compare: { type: 'boolean', help: 'count and show the rows that differ' },
    swap: { type: 'boolean', help: 'put the new tables in the place of the live ones' },
    'swap-wait': { type: 'string', value: '<duration>', help: 'the longest time that writers wait for the swap [3s]' },
    'drop-unknown': { type: 'boolean', help: 'with --swap: let rows go that belong to no aggregate the consumer knows' },
    'drop-old': { type: 'boolean', help: 'drop the tables that were replaced, now or by an earlier swap' },
    abandon: { type: 'boolean', help: 'give the rebuild under way up and remove its tables' },
    yes: { type: 'boolean', help: 'with --drop-old or --abandon: do it; without this it is only explained' },
  },
  async run(context) {
    const { settings, values } = context
    const name = namedConsumer(values['consumer'])
    const { service } = settings.names()
    const configured = settings.consume()
    return await withSchema(
      settings,
      async (db, schema) => {
        const transport = await configured.transport({ db, schema })
        return await closedAfter(transport, async () => {
          const signals = createSignals()
          const made = await configured.consumers({ db, schema, service, transport, signals })
          return await act(context, { db, transport, consumer: chosenConsumer(made, name) })
        })
      },
      { max: connections },
    )
  },
}

interface Opened {
  readonly db: Database
  readonly transport: Transport
  readonly consumer: Consumer
}

async function act(context: CommandContext, opened: Opened): Promise<CommandResult> {
  const { values, user: actor } = context
  const { consumer, transport } = opened
  const { name, schema } = consumer.settings
  const isFinal = values['abandon'] === true || values['drop-old'] === true
  if (isFinal && values['yes'] !== true) return await explain(context, consumer)
  if (values['abandon'] === true) {
    const abandoned = await abandonRebuild({ consumer, actor, transport })
    const kept = transport.unsubscribe === undefined ? '; their subscriptions are yours to delete' : ' and their subscriptions'
    return {
      text: abandoned
        ? `The rebuild of ${name} is abandoned.`
        : `No rebuild of ${name} is under way. Removed what earlier ones remembered${kept}.`,
      data: { abandoned },
    }
  }
  const isDropOnly = values['drop-old'] === true && values['swap'] !== true && textOption(values, 'from') === undefined
  const report = isDropOnly ? undefined : await build(context, opened)
  if (report?.leftover !== undefined)
    context.note(`${report.leftover} Run: waybill rebuild ${name} --abandon --yes --schema ${schema}`)
  const dropped = values['drop-old'] === true ? await dropReplaced({ consumer, actor }) : []
  const lines = report === undefined ? [] : reportLines(name, report)
  if (values['drop-old'] === true)
    lines.push(dropped.length === 0 ? 'No replaced table is left.' : `Dropped ${dropped.join(', ')}.`)
  const isRefused = report !== undefined && values['swap'] === true && !report.swapped
  return { text: lines.join('\n'), data: { ...report, dropped }, ...(isRefused ? { exitCode: exitCodes.checkFailed } : {}) }
}

/** What would be gone. Nothing is changed, and nothing is built either: hours of work should not end with this question. */
async function explain({ values, note }: CommandContext, consumer: Consumer): Promise<CommandResult> {
  const { name } = consumer.settings
  const { shadows, replaced } = await rebuildLeftovers(consumer)
  const isAbandon = values['abandon'] === true
  const dropped = isAbandon ? (shadows ?? []) : replaced
  const lines = dropped.map((table) => `would drop ${table}`)
  if (isAbandon && shadows === undefined)
    lines.push(`No rebuild of ${name} is under way; would remove what earlier ones remembered.`)
  if (!isAbandon && values['swap'] === true) lines.push('would drop the tables that the swap replaces')
  note(`Nothing was changed. To ${isAbandon ? 'abandon' : 'drop'}, run the same with --yes.`)
  return { text: lines.join('\n') || 'No replaced table is left.', data: { wouldDrop: dropped }, exitCode: exitCodes.refused }
}

async function build({ values, settings, user, stopSignal, note }: CommandContext, opened: Opened): Promise<RebuildReport> {
  const { consumer, transport, db } = opened
  const { name } = consumer.settings
  const swapWaitMs = durationOption(values, 'swap-wait')
  const from = textOption(values, 'from')
  if (from !== undefined) note(`${name}: from ${showFrom(parseFrom(from))}`)
  const common = {
    consumer,
    transport,
    from,
    compare: values['compare'] === true,
    swap: values['swap'] === true,
    dropUnknown: values['drop-unknown'] === true,
    ...(swapWaitMs === undefined ? {} : { swapWaitMs }),
    actor: user,
    signal: stopSignal(),
    onProgress: teller(name, note),
  }
  const schema = textOption(values, 'owner-schema') ?? settings.names().schema
  const ownerUrl = textOption(values, 'owner-url')
  if (ownerUrl === undefined) return await rebuild({ ...common, owner: { db, schema } })
  return await withDatabase(ownerUrl, (owner) => rebuild({ ...common, owner: { db: owner, schema } }))
}

function teller(consumer: string, note: (text: string) => void): (progress: RebuildProgress) => void {
  let toldAtMs = -Infinity
  return ({ reached, total, etaMs }) => {
    if (performance.now() - toldAtMs < tellEveryMs && reached < total) return
    toldAtMs = performance.now()
    const share = total === 0 ? 100 : Math.floor((reached / total) * 100)
    const left = etaMs === undefined || reached === total ? '' : `, about ${textDuration(etaMs)} left`
    note(`${consumer}: ${reached} of ${total} aggregates (${share} %)${left}`)
  }
}

function reportLines(consumer: string, report: RebuildReport): string[] {
  const lines = report.comparisons.flatMap((each) => [
    `${each.table}: ${each.live} rows live, ${each.rebuilt} rebuilt; ${each.missing} missing, ${each.extra} extra, ${each.older} older, ${each.newer} newer, ${each.different} different; checksums ${each.checksumsMatch ? 'match' : 'differ'}.`,
    ...each.samples.map(({ live, rebuilt }) => `  live ${live ?? 'nothing'}\n  new  ${rebuilt ?? 'nothing'}`),
  ])
  const built = `Generation ${report.generation} of ${consumer} is built: ${report.aggregates} aggregates.`
  const gone = report.droppedRows === 0 ? [] : [goneLine(report)]
  if (report.swapped) return [...lines, built, `Swapped in. Replaced: ${report.replaced.join(', ')}.`, ...gone]
  return [...lines, built, `Not swapped. Go on with: waybill rebuild ${consumer} --swap`]
}

function goneLine({ droppedRows, replaced }: RebuildReport): string {
  const counted = droppedRows < mostCounted ? droppedRows : `At least ${droppedRows}`
  return `${counted} rows of no known aggregate went; ${replaced.join(', ')} has them until it is dropped.`
}
