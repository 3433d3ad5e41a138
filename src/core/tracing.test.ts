import { expect, test } from 'vitest'
import { readTraceContext, writeTraceContext } from './tracing.ts'

const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
const context = { traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331', flags: 1, state: undefined }

test('a context is read as it was written', () => {
  expect(writeTraceContext(context)).toEqual({ traceparent })
  expect(readTraceContext({ traceparent })).toEqual(context)
  const headers = writeTraceContext({ ...context, state: 'a=1,b=2' })
  expect(readTraceContext(headers)).toEqual({ ...context, state: 'a=1,b=2' })
})

test('a later version is read as far as it is known', () => {
  expect(readTraceContext({ traceparent: `${traceparent.replace(/^00/, '01')}-more` })).toEqual(context)
})

test.each([
  undefined,
  '',
  '00-abc',
  'ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
  '00-00000000000000000000000000000000-b7ad6b7169203331-01',
  '00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01',
  '00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01',
  '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-012',
])('no context is made of %j', (wrong) => {
  expect(readTraceContext({ traceparent: wrong })).toBeUndefined()
})

test('a tracestate that is too long to be a header of an event is left out', () => {
  const state = `a=${'1'.repeat(511)}`
  expect(writeTraceContext({ ...context, state })).toEqual({ traceparent })
  expect(readTraceContext({ traceparent, tracestate: state })).toEqual(context)
})
