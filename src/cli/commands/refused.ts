/**
 * `waybill refused`: which messages consumers refused because their signature is missing or wrong, as far as a sample was kept.
 */
import { countsOfRefused, listRefused } from '../../consumer/failure/refused-messages.ts'
import { WaybillError } from '../../core/errors.ts'
import type { Distrust } from '../../core/event/signing.ts'
import type { Command, OptionValues } from '../frame/command.ts'
import { textOption, wholeOption } from '../frame/option-values.ts'
import { databaseOptions } from '../frame/settings.ts'
import { textTable } from '../frame/text-table.ts'
import { withSchema } from '../frame/open-schema.ts'

const reasons = ['unsigned', 'unknown_key', 'forged'] as const

export const refusedCommand: Command = {
  summary: 'Count the messages that consumers refused for their signature, or list them',
  details: [
    'A consumer keeps 100 of each reason, and replaces those that are older than a day; the metric counts all of them. What a',
    'message says of itself is shown as it came: believe none of it.',
  ],
  options: {
    ...databaseOptions,
    consumer: { type: 'string', value: '<name>', help: 'those of this consumer' },
    reason: { type: 'string', value: '<reason>', help: reasons.join(', ') },
    each: { type: 'boolean', help: 'every message by itself, newest first' },
    limit: { type: 'string', value: '<n>', help: 'with --each: at most so many [100]' },
  },
  run: async ({ values, settings }) =>
    await withSchema(settings, async (db, schema) => {
      const [consumer, reason] = [textOption(values, 'consumer'), reasonOption(values)]
      if (values['each'] !== true) {
        const isAsked = (each: { consumer: string; reason: Distrust }): boolean =>
          (consumer ?? each.consumer) === each.consumer && (reason ?? each.reason) === each.reason
        const counts = (await countsOfRefused(db, schema)).filter(isAsked)
        const lines = counts.map((each) => [each.consumer, each.reason, each.count, each.recent, each.newestAt])
        const titles = ['CONSUMER', 'REASON', 'KEPT', 'OF THE LAST DAY', 'NEWEST']
        return { text: counts.length === 0 ? 'None.' : textTable(titles, lines), data: counts }
      }
      const found = await listRefused({ db, schema, consumer, reason, limit: wholeOption(values, 'limit') })
      const lines = found.map(({ attributes, ...each }) => [
        each.refusedAt,
        each.consumer,
        each.reason,
        attributes['waybill_key'],
        each.topic,
        each.messageId,
        attributes['event_type'],
        attributes['aggregate_id'],
        attributes['version'],
        each.bodyBytes,
      ])
      const titles = ['REFUSED', 'CONSUMER', 'REASON', 'KEY', 'TOPIC', 'MESSAGE', 'TYPE', 'AGGREGATE', 'VERSION', 'BYTES']
      const data = found.map(({ body, ...rest }) => ({ ...rest, bodyBase64: Buffer.from(body).toString('base64') }))
      return { text: found.length === 0 ? 'None.' : textTable(titles, lines), data }
    }),
}

function reasonOption(values: OptionValues): Distrust | undefined {
  const given = textOption(values, 'reason')
  const reason = reasons.find((each) => each === given)
  if (given === undefined || reason !== undefined) return reason
  throw new WaybillError('INVALID_OPTION', `--reason is ${reasons.join(', ')}, not "${given}".`)
}
