/**
 * `waybill pubsub-server`: the local Pub/Sub server as a process of its own, for any client in any language.
 */
import { WaybillError } from '../../core/errors.ts'
import { untilAborted } from '../../core/service/abort.ts'
import type { PubsubServerOptions } from '../../testing/servers/pubsub-server.ts'
import type { Command, OptionValues } from '../frame/command.ts'
import { portOption } from '../frame/option-values.ts'

export const pubsubServerCommand: Command = {
  summary: 'Serve the Pub/Sub protocol locally, for development, tests and drills',
  details: [
    'Official clients use it through PUBSUB_EMULATOR_HOST, which it prints. Faults are switched on and off over HTTP at the',
    'admin address: duplicates, delays, lost acknowledgements, refusals, cut streams. It needs the package waybill-pubsub-server.',
  ],
  options: {
    host: { type: 'string', value: '<address>', help: 'where to listen [127.0.0.1]' },
    port: { type: 'string', value: '<port>', help: 'the port of the protocol [8085]' },
    'admin-port': { type: 'string', value: '<port>', help: 'the port of the admin address [a free one]' },
    'data-dir': { type: 'string', value: '<folder>', help: 'keep what was confirmed across restarts [in memory only]' },
    fsync: { type: 'boolean', help: 'with --data-dir: survive the loss of power too' },
  },
  async run({ values, stopSignal, note }) {
    const { startPubsubServer } = await import('../../testing/servers/pubsub-server.ts')
    const signal = stopSignal()
    const server = await startPubsubServer(optionsOf(values))
    note(`PUBSUB_EMULATOR_HOST=${server.emulatorHost}`)
    note(`Faults: ${server.adminUrl}`)
    await untilAborted(signal)
    const { emulatorHost, adminUrl } = server
    await server.stop()
    return { text: 'Stopped.', data: { emulatorHost, adminUrl } }
  },
}

function optionsOf(values: OptionValues): PubsubServerOptions {
  const text = (name: string): string | undefined => (typeof values[name] === 'string' ? values[name] : undefined)
  const dataDir = text('data-dir')
  const adminPort = portOption(values, 'admin-port')
  if (values['fsync'] === true && dataDir === undefined)
    throw new WaybillError('INVALID_OPTION', '--fsync needs --data-dir: without it nothing is written.')
  return {
    host: text('host') ?? '127.0.0.1',
    port: portOption(values, 'port') ?? 8085,
    ...(adminPort === undefined ? {} : { adminPort }),
    ...(dataDir === undefined ? {} : { dataDir, fsync: values['fsync'] === true }),
  }
}
