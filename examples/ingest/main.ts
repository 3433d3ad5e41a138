/**
 * Starts the example: `npm run example -- ingest`.
 *
 * Prints where to send readings. Typing the name of a hop kills its process, and a new one takes its place. Stops on Ctrl-C.
 */
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { stopSignal } from '../game/stop-signal.ts'
import { startHops } from './hops.ts'

const stopping = stopSignal()
const say = (line: string): void => void process.stdout.write(`${line}\n`)

const hops = await startHops()
const lines = createInterface({ input: process.stdin })
say(`Send readings to ${hops.url}; the broker is ${hops.broker}.`)
say(`  curl -X POST ${hops.url} -H 'content-type: application/json' -d '{"meter":"m1","at":1,"value":42}'`)
say(`  curl ${hops.url}/m1/1`)
say(`Type ${hops.names.join(', ')} and Enter to kill that process; a new one takes its place.`)
process.send?.({ url: hops.url })

lines.on('line', (line) => {
  const name = hops.names.find((each) => each === line.trim())
  if (name === undefined) return say(`There is no ${line.trim()}.`)
  hops.kill(name).then(
    () => say(`${name} was killed and is back.`),
    (error: unknown) => say(`${name} did not come back: ${String(error)}`),
  )
})
if (!stopping.aborted) await once(stopping, 'abort')
lines.close()
await hops.stop()
process.disconnect?.()
