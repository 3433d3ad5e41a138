import { expect, test } from 'vitest'
import { settingsIn } from './handler-settings.ts'

test.each([
  ['set local role tenant_7', ['role']],
  ['SET LOCAL search_path = other, public', ['search_path']],
  ["set local app.tenant = '7'; update t set a = 1", ['app.tenant']],
  ["select set_config('App.Tenant', $1, true)", ['app.tenant']],
  ["select set_config( 'a.b', $1, $2 ), set_config('c.d', 'x', true)", ['a.b', 'c.d']],
  ['/* trace */ set local time zone 3', ['time']],
])('%s is put back', (text, changes) => {
  expect(settingsIn(text)).toEqual({ changes, refused: undefined })
})

test.each([
  ["set search_path = other -- for 'all'"],
  ['select 1; SET SESSION role x'],
  ['reset role'],
  ['discard temp'],
  ['set constraints all deferred'],
  ['set transaction read only'],
  ['set local session authorization x'],
  ['set local "App.Tenant" = 7'],
  ['create temp table t (id int)'],
  ['create local temporary view t as select 1'],
  ['select a into temporary t from s'],
  ['create table pg_temp.t (id int)'],
  ['select set_config($1, $2, true)'],
  ["select set_config('a.b', 'x', false)"],
])('%s is refused', (text) => {
  expect(settingsIn(text).refused).toMatch(/./)
})

test.each([
  ['update role set local = 1'],
  [`insert into note values ('set role x; reset all; set_config(1)')`],
  ['insert into temp (id) values (1)'],
  ['with gone as (delete from temp returning id) insert into temp2 select id from gone'],
  ['update t\nset temporary = true'],
  ['select reset, discard, temp from t -- set role x'],
  ['create table template (id int)'],
  [`select $$ create temp table x; $$`],
])('%s is left alone', (text) => {
  expect(settingsIn(text)).toEqual({ changes: [], refused: undefined })
})
