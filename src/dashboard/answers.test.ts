import { expect, test } from 'vitest'
import { WaybillError } from '../core/errors.ts'
import { answerError } from './answers.ts'

test.each([
  [new WaybillError('NOT_FOUND', 'There is none.'), 404, { code: 'NOT_FOUND', message: 'There is none.' }],
  [
    new Error('connect to postgres://app:secret@db/shop'),
    503,
    { code: 'UNAVAILABLE', message: 'The database could not be asked: connect to postgres://app:***@db/shop.' },
  ],
  [
    new TypeError('secret is not a function'),
    500,
    { code: 'INTERNAL', message: 'The dashboard has failed. That is a defect: please report it.' },
  ],
])('%s is told without a password and without a stack', async (error, status, shown) => {
  const answer = answerError(error)
  expect({ status: answer.status, body: await answer.json() }).toEqual({ status, body: { error: shown } })
})
