/**
 * Closed sets are closed: codes, signals, key parts and versions that do not exist do not compile.
 */
import {
  businessKeyId,
  createSignals,
  createTokens,
  meaningOf,
  type parseVersion,
  run,
  WaybillError,
  type ErrorCode,
} from '../../src/index.ts'
import { sameType } from './same-type.ts'

// @ts-expect-error -- no such code
void new WaybillError('OUT_OF_LUCK', 'x')
// @ts-expect-error -- no such code
meaningOf('OUT_OF_LUCK')

/** A switch over all codes needs no default; this one forgot all but one. */
// @ts-expect-error -- not every code returns
export function statusOf(code: ErrorCode): number {
  switch (
    code // oxlint-disable-line typescript/switch-exhaustiveness-check -- the case under test
  ) {
    case 'TIMEOUT':
      return 504
  }
}

const signals = createSignals()
signals.emit('service.started', { service: 'relay' })
signals.on('service.stopped', (event, name) => {
  sameType<typeof event, { readonly service: string; readonly error?: unknown }>()
  sameType<typeof name, 'service.stopped'>()
})
// @ts-expect-error -- no such signal
signals.emit('service.exploded', {})
// @ts-expect-error -- the service is missing
signals.emit('service.started', {})
// @ts-expect-error -- no such signal
signals.on('service.exploded', () => undefined)

businessKeyId('order', [1, 2n, 'three', true])
// @ts-expect-error -- null is no part of a key
businessKeyId('order', null)
// @ts-expect-error -- nor is a date: say how it is written
businessKeyId('order', [new Date()])

sameType<ReturnType<typeof parseVersion>, bigint>()
// @ts-expect-error -- a version is a bigint; read numbers with parseVersion
createTokens().encode({ aggregateType: 'order', aggregateId: '1', version: 1 })
// @ts-expect-error -- a list, so that secrets can be rotated
createTokens({ secrets: 'a secret of 16 characters' })

// @ts-expect-error -- without a signal nobody could stop it
void run([])
// @ts-expect-error -- a service has a name
void run([{ run: async () => await Promise.resolve() }], { signal: new AbortController().signal })
