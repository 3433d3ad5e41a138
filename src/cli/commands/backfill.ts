/**
 * `waybill backfill <name>`: emits the state of existing rows as snapshot events, with its progress on stderr. What it has
 * done is committed as it goes: stopped or killed, it goes on with `--resume`.
 */
import { WaybillError } from '../../core/errors.ts'
import { createSignals, type SignalBus, type Signals } from '../../core/signals.ts'
import type { BackfillMode } from '../../outbox/backfill/operation.ts'
import { createOutbox } from '../../outbox/outbox.ts'
import { exitCodes, type Command, type OptionValues } from '../frame/command.ts'
import { databaseOptions } from '../frame/settings.ts'
import { textDuration } from '../frame/text-table.ts'
import { withSchema } from '../frame/open-schema.ts'

const tellEveryMs = 2_000

export const backfillCommand: Command = {
  summary: 'Emit the state of rows that were there before their events',
  details: [
    'Backfills are named in waybill.config.ts. Each row becomes a state event with the next version of its aggregate, so',
    'consumers that are up to date notice nothing and the others are repaired. Live traffic comes first. Connect as the',
    'owner of the schema. The first SIGTERM or SIGINT finishes the batch in hand.',
  ],
  argument: 'name',
  options: {
    ...databaseOptions,
    resume: { type: 'boolean', help: 'go on with the unfinished one; begin if there is none; a finished one is left alone' },
    restart: { type: 'boolean', help: 'give an unfinished one up and begin again' },
  },
  async run({ values, settings, user, stopSignal, note }) {
    const mode = modeOf(values)
    const { service } = settings.names()
    const { name, create } = settings.backfill(values['name'])
    const signal = stopSignal()
    const signals = createSignals()
    tell(signals, note)
    return await withSchema(settings, async (db, schema) => {
      const backfill = create({ db, outbox: createOutbox({ schema }), name, service, actor: user, signals })
      const report = await backfill.run({ mode, signal })
      const done = `${report.rows} rows, ${report.emitted} events, ${report.skipped} left out`
      return report.state === 'finished'
        ? { text: `The backfill ${name} is finished: ${done}.`, data: report }
        : {
            text: `The backfill ${name} was stopped after ${done}. Go on with: waybill backfill ${name} --resume`,
            data: report,
            exitCode: exitCodes.failed,
          }
    })
  },
}

function modeOf(values: OptionValues): BackfillMode {
  if (values['resume'] === true && values['restart'] === true)
    throw new WaybillError('INVALID_OPTION', 'Choose one of --resume and --restart.')
  if (values['restart'] === true) return 'restart'
  return values['resume'] === true ? 'resume' : 'new'
}

const waitingText =
  'waits: too much is due at the relay, or too much of its stream failed. See whether a relay runs (waybill outbox status), and what fails and why (waybill outbox list --state released --stream <type>).'

function tell(signals: SignalBus, note: (text: string) => void): void {
  let toldAtMs = -Infinity
  signals.on('backfill.progress', (progress) => {
    if (performance.now() - toldAtMs < tellEveryMs) return
    toldAtMs = performance.now()
    note(progressText(progress))
  })
  signals.on('backfill.waiting', ({ backfill, reason }) => {
    if (reason === 'backlog') note(`${backfill}: ${waitingText}`)
  })
}

function progressText(progress: Signals['backfill.progress']): string {
  const { backfill, rows, emitted, done, total, rowsPerSecond, etaMs } = progress
  const share = total === undefined || total === 0 ? '' : ` (${Math.min(100, Math.floor((done / total) * 100))} %)`
  const left = etaMs === undefined ? '' : `, about ${textDuration(etaMs)} left`
  return `${backfill}: ${rows} rows${share}, ${emitted} events, ${Math.round(rowsPerSecond)} rows/s${left}`
}
