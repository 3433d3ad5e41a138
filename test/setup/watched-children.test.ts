import { expect, test } from 'vitest'
import { watchChildren } from './watched-children.ts'

const fixture = (name: string): URL => new URL(`../fixtures/${name}-child.ts`, import.meta.url)

test('a child that was killed or told to stop ended as it should', async () => {
  const children = watchChildren()
  await children.kill(children.start(fixture('deaf')))
  const told = children.start(fixture('told'), { env: { WAYBILL_DRILL_PROCESS: '{}' } })
  await told.message((message: { ready?: object }) => message.ready !== undefined)
  await children.stop(told)
  expect(children.violations).toEqual([])
})

test('a child that fails by itself is a violation with its last words, also if somebody kills it later', async () => {
  const children = watchChildren()
  const child = children.start(fixture('failing'), { args: ['--exit'] })
  await child.exited
  await children.kill(child)
  expect(children.violations).toEqual([expect.stringMatching(/^process \d+ ended by itself \(code 3\): leaving as told/)])
})
