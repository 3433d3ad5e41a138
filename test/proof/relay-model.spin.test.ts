/**
 * The model of the relay's protocol again, with more going wrong at once than `npm test` has time for.
 */
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { verify } from '../model/spin.ts'

const model = fileURLToPath(new URL('../model/relay.pml', import.meta.url))
const isFull = process.env['WAYBILL_PROOF'] === 'full'
const bounds = [['TROUBLE=3'], ['LARGE'], ...(isFull ? [['LARGE', 'TROUBLE=3']] : [])]

test.each(bounds.map((defines) => ({ defines })))(
  'no interleaving breaks the protocol within $defines',
  { timeout: 3_600_000 },
  async ({ defines }) => {
    const verdict = await verify(model, { defines, optimised: true })
    console.log(JSON.stringify({ model: 'relay', defines, states: verdict.states }))
    expect(verdict).toMatchObject({ violation: undefined, complete: true })
  },
)
