/**
 * `waybill provision`: shows what a Pub/Sub project lacks, makes it, or prints it for other tools; `waybill doctor pubsub`: says
 * what is wrong with what is there.
 */
import { WaybillError } from '../../core/errors.ts'
import { closedAfter } from '../../ops/connect/with-database.ts'
import { doctorPubsub } from '../../ops/doctor/pubsub.ts'
import { desiredResources, type DesiredResources } from '../../ops/provision/desired.ts'
import { gcloudText, planText, terraformText, withNotes } from '../../ops/provision/print.ts'
import { applyProvision, planProvision } from '../../ops/provision/provision.ts'
import { createPubsubAdmin, type PubsubAdmin } from '../../transport/pubsub/admin/admin.ts'
import { exitCodes, type Command, type CommandContext, type CommandResult, type OptionSpec } from '../frame/command.ts'
import type { PubsubConfig } from '../../config/config.ts'

const projectOptions: Readonly<Record<string, OptionSpec>> = {
  project: {
    type: 'string',
    value: '<id>',
    help: 'the Google Cloud project (or PUBSUB_PROJECT_ID, or pubsub.projectId of the config)',
  },
  'emulator-host': {
    type: 'string',
    value: '<host:port>',
    help: 'an emulator or waybill pubsub-server (or PUBSUB_EMULATOR_HOST)',
  },
  config: { type: 'string', value: '<file>', help: 'the configuration [waybill.config.ts]' },
}

export const provision: Command = {
  summary: 'Show, make or print the topics, subscriptions, schemas and grants that the service needs',
  details: [
    'Reads streams and consumers from pubsub.provision of the configuration. Without an option it shows the plan;',
    `exit code ${exitCodes.checkFailed} if there is something to change. Nothing is ever deleted.`,
  ],
  options: {
    plan: { type: 'boolean', help: 'show what would be changed (the default)' },
    apply: { type: 'boolean', help: 'change it' },
    terraform: { type: 'boolean', help: 'print everything as Terraform; asks nobody' },
    gcloud: { type: 'boolean', help: 'print everything as gcloud commands; asks nobody' },
    ...projectOptions,
  },
  async run(context) {
    const { values, settings, note } = context
    const chosen = ['plan', 'apply', 'terraform', 'gcloud'].filter((option) => values[option] === true)
    if (chosen.length > 1) throw new WaybillError('INVALID_OPTION', `Choose one of --${chosen.join(', --')}.`)
    const config = settings.pubsub()
    const desired = desiredOf(config)
    if (values['terraform'] === true || values['gcloud'] === true) {
      const text = (values['gcloud'] === true ? gcloudText : terraformText)(desired, config.projectId)
      return { text, data: { text, desired } }
    }
    return await withAdmin(config, async (admin): Promise<CommandResult> => {
      const plan = await planProvision(admin, desired)
      if (values['apply'] !== true) {
        return { text: planText(plan), data: plan, exitCode: plan.changes.length === 0 ? exitCodes.ok : exitCodes.checkFailed }
      }
      await applyProvision(admin, plan, ({ kind, name }) => note(`done: ${kind} ${name}`))
      const done = plan.changes.length === 0 ? 'Nothing to change.' : `Changed ${plan.changes.length} in ${config.projectId}.`
      return { text: withNotes([done], plan), data: { applied: plan.changes, notes: plan.notes } }
    })
  },
}

export const doctorPubsubCommand: Command = {
  summary: 'Say what is wrong with the subscriptions of the service',
  details: [
    'Compares topics, subscriptions and grants with pubsub.provision of the configuration.',
    `Exit code ${exitCodes.checkFailed} if anything is wrong; each line says what, and what to do.`,
  ],
  options: {
    'replay-days': { type: 'string', value: '<days>', help: 'how far back a replay must reach [what provisioning sets]' },
    ...projectOptions,
  },
  async run({ values, settings }: CommandContext) {
    const config = settings.pubsub()
    const days = values['replay-days'] === undefined ? undefined : Number(values['replay-days'])
    if (days !== undefined && !(days > 0))
      throw new WaybillError('INVALID_OPTION', '--replay-days needs a number of days, such as 7.')
    const desired = desiredOf(config)
    const findings = await withAdmin(config, (admin) =>
      doctorPubsub(admin, { desired, ...(days === undefined ? {} : { replaySeconds: days * 86_400 }) }),
    )
    const found = findings.length === 0 ? ['Nothing is wrong.'] : findings.map((finding) => finding.text)
    return {
      text: withNotes(found, desired),
      data: { findings, notes: desired.notes },
      exitCode: findings.length === 0 ? exitCodes.ok : exitCodes.checkFailed,
    }
  },
}

/** What the configuration asks for. That may be nothing, but it has to be said: compared with nothing, every project is in order. */
function desiredOf({ provision: wanted }: PubsubConfig): DesiredResources {
  if (wanted !== undefined) return desiredResources(wanted)
  throw new WaybillError(
    'INVALID_OPTION',
    'Which streams and consumers? Set pubsub.provision in waybill.config.ts, such as pubsub: { provision: { streams: [orders], consumers: [{ name, streams }] } }; or name that file by --config.',
  )
}

async function withAdmin<Result>(config: PubsubConfig, work: (admin: PubsubAdmin) => Promise<Result>): Promise<Result> {
  const { provision: _desired, ...connection } = config
  const admin = createPubsubAdmin(connection)
  return await closedAfter(admin, () => work(admin))
}
